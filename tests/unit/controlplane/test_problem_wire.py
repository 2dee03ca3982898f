"""The problem in a status' details is one message, whichever protocol's file declares it."""

from controlplane.wire import agent_pb2, node_pb2


def test_the_node_agents_problem_is_the_sidecars() -> None:
    def fields(message: type[agent_pb2.Problem] | type[node_pb2.Problem]) -> list[tuple[str, int, int, bool]]:
        return [(f.name, f.number, f.type, f.is_repeated) for f in message.DESCRIPTOR.fields]

    assert fields(node_pb2.Problem) == fields(agent_pb2.Problem)
    encoded = node_pb2.Problem(code="conflict", detail="why", details={"a": "b"}).SerializeToString()
    assert agent_pb2.Problem.FromString(encoded).details == {"a": "b"}
