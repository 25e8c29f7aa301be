"""The companion: the only process that talks to a container engine. It passes on listed fields, nothing else.

Comes in: the engine's API and events, by the docker SDK. Goes out: lines of collectors.container.wire on a socket.
Imports collectors.container, config and host.
"""
