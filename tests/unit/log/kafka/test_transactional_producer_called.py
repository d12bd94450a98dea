"""What confluent-kafka raises and Python cannot catch is made an exception."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException

from noesium_stream.log.kafka.transactional_producer import called
from tests.support.reading import PATIENCE_S


def raise_bare() -> None:
    """Raise a `KafkaError` as the client's C code does: it is no exception class."""
    error = KafkaError(KafkaError._FENCED, "fenced", fatal=True)
    api = ctypes.pythonapi
    restore = api.PyErr_Restore
    restore.argtypes = [ctypes.py_object, ctypes.py_object, ctypes.c_void_p]
    for held in (type(error), error):
        api.Py_IncRef(ctypes.py_object(held))  # PyErr_Restore takes the references
    restore(type(error), error, None)


def test_a_bare_error_passes_by_every_handler_but_the_barest() -> None:
    with pytest.raises(KafkaException) as caught:
        called(raise_bare)
    assert caught.value.args[0].code() == KafkaError._FENCED


def test_who_awaits_a_call_on_another_thread_hears_of_it() -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(KafkaException):
        executor.submit(called, raise_bare).result(timeout=PATIENCE_S)


def test_a_result_and_an_exception_pass_through() -> None:
    assert called(max, 1, 2) == 2
    with pytest.raises(ZeroDivisionError):
        called(divmod, 1, 0)
