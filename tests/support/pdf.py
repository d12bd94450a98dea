"""A minimal PDF writer, so that tests need no binary files from elsewhere."""

from __future__ import annotations

import zlib
from collections.abc import Sequence


def make_pdf(pages: Sequence[Sequence[str]], title: str = "") -> bytes:
    """A PDF with one line of Helvetica per string, a page per list."""
    objects: list[bytes] = []
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects.append(b"<< /Type /Catalog /Pages 2 0 R >>")
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode())
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, lines in enumerate(pages):
        shown = "".join(f"({_escaped(line)}) Tj T*\n" for line in lines)
        content = f"BT /F1 11 Tf 14 TL 60 780 Td\n{shown}ET".encode("latin-1")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {5 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
    objects.append(f"<< /Title ({_escaped(title)}) >>".encode("latin-1"))
    return _assembled(objects)


def make_bomb(size: int) -> bytes:
    """A small PDF whose page unfolds to `size` bytes."""
    folding = zlib.compressobj(9)
    folded = folding.compress(b"BT /F1 11 Tf (x) Tj ET")
    for _ in range(size // 1_000_000):
        folded += folding.compress(b" " * 1_000_000)
    folded += folding.flush()
    return _assembled(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << >> >>",
            b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(folded), folded),
            b"<< >>",
        ]
    )


def _assembled(objects: Sequence[bytes]) -> bytes:
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\n" % (len(objects) + 1, len(objects))
    out += b"startxref\n%d\n%%%%EOF\n" % start
    return bytes(out)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
