"""The companions: processes that may do what the recorder must not, and pass on listed fields, nothing else.

One talks to a container engine. Comes in: the engine's API and events, by the docker SDK. Goes out: lines of
collectors.container.wire on a socket. The other, accounts.py, has CAP_NET_ADMIN. Comes in: taskstats of the kernel.
Goes out: lines of collectors.process.wire. Imports collectors, config and host.
"""
