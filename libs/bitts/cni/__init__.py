"""The CNI specification as values and pure functions: 0.1.0 to 1.1.0, as libcni behaves.

Nothing here touches a socket, a file or the clock (a contract checks that), so that the
protocol can be tested as tables and used by whoever speaks CNI.
"""
