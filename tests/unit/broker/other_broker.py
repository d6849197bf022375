"""Another broker, as the one under test reaches it: a connector, and scripted answers."""

import asyncio

from odradek.wire.api_keys import request_class
from odradek.wire.codec import decoder, encoder
from odradek.wire.header import decode_request_header, encode_response_header


class Transport(asyncio.Transport):
    """The end of a connection to `OtherBroker` on the tested broker's side."""

    def __init__(self, other: "OtherBroker", protocol) -> None:
        super().__init__()
        self.other = other
        self.protocol = protocol
        self.closed = False
        self._received = bytearray()

    def write(self, data):
        if self.closed:
            return
        self._received += data
        while len(self._received) >= 4:
            size = int.from_bytes(self._received[:4], "big")
            if len(self._received) < size + 4:
                return
            frame = memoryview(bytes(self._received[4 : size + 4]))
            del self._received[: size + 4]
            header, position = decode_request_header(frame)
            message = request_class(header.api_key)
            request, _ = decoder(message, header.api_version)(frame, position)
            self.other.received(self, header, request)

    def respond(self, header, response):
        """Send an answer, or arbitrary bytes."""
        if isinstance(response, bytes):
            self.deliver(response)
            return
        body = encoder(type(response), header.api_version)(response)
        head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
        frame = head + body
        self.deliver(len(frame).to_bytes(4, "big") + frame)

    def deliver(self, data):
        while data and not self.closed:
            room = self.protocol.get_buffer(len(data))
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self.protocol.buffer_updated(count)

    def is_closing(self):
        return self.closed

    def get_write_buffer_size(self):
        return 0

    def abort(self):
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    close = abort


class OtherBroker:
    """`answer(request)` returns the answer, sent in the next turn; None: no answer yet."""

    def __init__(self, answer=lambda request: None) -> None:
        self.answer = answer
        self.requests = []
        self.connections = []
        self.waiting = []  # requests that were not answered: (transport, header)
        self.refuses = False
        self.gate = None  # a future: connections are made when it is done

    async def connect(self, make_protocol, host, port):
        if self.refuses:
            raise ConnectionRefusedError(f"{host}:{port}")
        if self.gate is not None:
            await self.gate
        protocol = make_protocol()
        transport = Transport(self, protocol)
        self.connections.append((host, port, transport))
        protocol.connection_made(transport)
        return protocol

    def received(self, transport, header, request):
        self.requests.append(request)
        response = self.answer(request)
        if response is None:
            self.waiting.append((transport, header))
        else:
            asyncio.get_running_loop().call_soon(transport.respond, header, response)

    def reply(self, response):
        """Answer the oldest waiting request."""
        transport, header = self.waiting.pop(0)
        transport.respond(header, response)

    def of(self, kind):
        return [request for request in self.requests if isinstance(request, kind)]

    @property
    def open_connections(self):
        return [transport for *_, transport in self.connections if not transport.closed]
