"""RPC over RDMA: clients and servers of ONC RPC programs, and measurements.

What it is for:

- a script asks a server something, as an operator's check or a step of a test does: Client, Call.wait();
- a test of a client in another language gets a server that answers as the test needs: Server, handlers in Python;
- somebody measures the own program, not testrpc's: measure(), with testrpc's words in its JSON;
- a program with a loop of its own, such as asyncio's, makes and serves calls in its one thread: Runtime.poll();
- bulk data that RDMA places is used where it lies, as a memoryview: RegisteredMemory, Buffer.

doc/guide-python.md shows each. The module calls the C API (rrdk/rrdk.h) by ctypes, and needs librrdk.so.0, or the
library that the environment variable RRDK_LIBRARY names. What rrdk.h and the C++ headers say of options, errors and
threads applies here, too.

Names:
  memory    Memory, Buffer, RegisteredMemory, Span
  cores     Runtime, IdlePolicy, Hugepages
  calling   Client, Connection, State, Call, CallStatus, Credential, AuthSys, Protection,
            Version, Draft
  serving   Procedure, Program, Server, ServerCall, ServerConnection, AcceptStat, AuthStat, BackwardClient,
            GssAcceptor, Acceptance, CallSecurity
  XDR       Encoder, Decoder
  errors    Error, ErrorCode, ClosedError, CallError, XdrError
  watching  Telemetry, ConnectionInfo, EndedBy, CaptureCounts, set_log_level, LogLevel; the logger "rrdk" has what
            handlers and callbacks raised
  measuring measure, Histogram, result
"""
from ._c import (NO_ID, OTHER_PROCEDURES, Acceptance, AcceptStat, AuthStat, CallError, CallStatus, ClosedError, Draft,
                 EndedBy, Error, ErrorCode, Hugepages, IdlePolicy, LogLevel, Protection, State, Version, XdrError, lib)
from ._client import Call, Client, Connection
from ._measure import Histogram, Telemetry, measure, result
from ._messages import AuthSys, ConnectionInfo, Credential, Decoder, Encoder
from ._runtime import Buffer, CaptureCounts, Memory, RegisteredMemory, Runtime, Span, ensure_eal, set_log_level
from ._serving import (BackwardClient, CallSecurity, GssAcceptor, Procedure, Program, Server, ServerCall,
                       ServerConnection)

__version__ = lib.version_string().decode()
__all__ = [name for name in dir() if not name.startswith("_") and name != "lib"]
