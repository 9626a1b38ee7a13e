"""How much memory of this process is in use, as glibc counts it."""

import ctypes
import gc

import pytest

_WORDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"

needed = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc 2.33 or later is needed"
)


class _MallocInfo(ctypes.Structure):
    _fields_ = [(word, ctypes.c_size_t) for word in _WORDS.split()]


def in_use():
    """Bytes, without what the allocators keep for later and small objects of Python."""
    gc.collect()
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _MallocInfo
    info = ask()
    return info.uordblks + info.hblkhd


def lost_per_call(call, times=2_000):
    """Bytes that stay in use for each call of what gets a new number in each."""
    for number in range(200):
        call(number)
    before = in_use()
    for number in range(10_000, 10_000 + times):
        call(number)
    return (in_use() - before) / times
