"""A line for each test that fails, when it fails. pytest itself names them after the last test."""

from __future__ import annotations

import pytest

from tests.support.parallel import is_first_process


def pytest_configure(config: pytest.Config) -> None:
    if is_first_process(config):
        config.pluginmanager.register(_Failures(config), "noesium_failures")


class _Failures:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name the test that has failed, and why, in one line."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message if crash is not None else report.longreprtext
            word = "FAILED" if report.when == "call" else "ERROR"
            terminal.write_line(f"\n{word} {report.nodeid}: {reason.partition(chr(10))[0]}", red=True)
