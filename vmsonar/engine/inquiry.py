"""Asks an engine about a container and picks what may be told, with whose it seems to be."""

from collections.abc import Mapping
from typing import Any

from vmsonar.containers.wire import ContainerFacts
from vmsonar.engine import facts as pick
from vmsonar.engine.accounts import home_owner, path_owner
from vmsonar.engine.api import EngineApi
from vmsonar.engine.clients import client_user, clients
from vmsonar.engine.commands import shown_command
from vmsonar.engine.settings import Settings


class Inquiry:
    """What was found out about the containers of one engine."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client_users: dict[str, int | None] = {}
        self._digests: dict[str, str | None] = {}

    def known(self) -> list[str]:
        """The containers that were asked about and not forgotten."""
        return sorted(self._client_users)

    def forget(self, container_id: str) -> None:
        self._client_users.pop(container_id, None)

    def ask(self, api: EngineApi, engine: str, container_id: str, is_new: bool) -> ContainerFacts | None:
        """The facts about a container; None when it is gone. For a new one, its client is looked for first."""
        waiting = list(clients(self._settings.proc)) if is_new else []
        answer = api.inspect(container_id)
        if answer is None:
            return None
        facts = self._facts(api, engine, answer)
        if waiting:
            self._client_users[container_id] = client_user(
                waiting, facts.name or "", facts.image or "", facts.compose_project
            )
        facts.client_user = self._client_users.setdefault(container_id, None)
        return facts

    def from_event(
        self, engine: str, container_id: str, attributes: Mapping[str, Any]
    ) -> ContainerFacts | None:
        """What the event itself says, unless the engine has said more before."""
        if container_id in self._client_users:
            return None
        return pick.from_event(container_id, attributes, engine, self._settings.labels)

    def _facts(self, api: EngineApi, engine: str, answer: Mapping[str, Any]) -> ContainerFacts:
        facts = pick.from_inspect(answer, engine, self._settings.labels)
        facts.command = shown_command(pick.arguments_of(answer), self._settings.command_line)
        facts.image_digest = self._digest(api, facts.image_digest)
        if folder := pick.working_dir_of(answer):
            facts.compose_user = path_owner(folder)
        in_homes = [path for path in pick.bind_sources(answer) if home_owner(path) is not None]
        owners = {owner for path in in_homes if (owner := path_owner(path)) is not None}
        facts.bind_users = sorted(owners) or None
        return facts

    def _digest(self, api: EngineApi, image_id: str | None) -> str | None:
        """The registry's digest where the image has one, else the image's id."""
        if image_id is None:
            return None
        if image_id not in self._digests:
            self._digests[image_id] = api.image_digest(image_id)
        return self._digests[image_id] or image_id
