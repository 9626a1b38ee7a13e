"""A name registry in a Redis server, for jobs on machines without a shared file system."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Sequence

from absl import logging

from actor_learner.naming import entries, registry
from actor_learner.support import errors, extras, redaction

KEY_PREFIX = "actor-learner/names/"

_RETRIES = 3
_SCAN_COUNT = 1000

# An entry is `owner \n ttl in milliseconds or nothing \n stamp \n value`.
# Scripts return 1: done, 0: not there, -1: somebody else's; of several keys, a list of these.
_READ = """
-- The entry of a key, or nil: nothing is there, or something that is not an entry of ours.
local function read(key)
  if redis.call('TYPE', key).ok ~= 'string' then return nil end
  local current = redis.call('GET', key)
  local after_owner = string.find(current, '\\n', 1, true)
  local after_ttl = after_owner and string.find(current, '\\n', after_owner + 1, true)
  local after_stamp = after_ttl and string.find(current, '\\n', after_ttl + 1, true)
  if not after_stamp then return nil end
  local ttl = string.sub(current, after_owner + 1, after_ttl - 1)
  if ttl ~= '' and not string.match(ttl, '^[0-9]+$') then return nil end
  return current, string.sub(current, 1, after_owner - 1), ttl, after_stamp
end
"""
_CREATE = f"""{_READ}
if ARGV[2] == '0' and read(KEYS[1]) then return 0 end
if ARGV[3] == '' then redis.call('SET', KEYS[1], ARGV[1])
else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3]) end
return 1
"""
_IF_OWNED = f"""{_READ}
local current, owner, ttl, after_stamp = read(KEYS[1])
if not current then return 0 end
if owner ~= ARGV[1] then return -1 end
"""
_REMOVE = f"{_IF_OWNED} redis.call('DEL', KEYS[1]) return 1"
_REFRESH = f"""{_READ}
local outcomes = {{}}
for number, key in ipairs(KEYS) do
  local current, owner, ttl = read(key)
  if not current then outcomes[number] = 0
  elseif owner ~= ARGV[1] then outcomes[number] = -1
  else
    if ttl ~= '' then redis.call('PEXPIRE', key, ttl) end
    outcomes[number] = 1
  end
end
return outcomes
"""
_UPDATE = f"""{_IF_OWNED}
local changed = string.sub(current, 1, after_stamp) .. ARGV[2]
if ttl == '' then redis.call('SET', KEYS[1], changed)
else redis.call('SET', KEYS[1], changed, 'PX', ttl) end
return 1
"""
_TAKE = f"""{_READ}
local current = read(KEYS[1])
if current then redis.call('DEL', KEYS[1]) end
return current
"""
_OUTCOMES = {1: entries.Outcome.DONE, 0: entries.Outcome.ABSENT, -1: entries.Outcome.FOREIGN}


class RedisRegistry(registry.NameRegistry):
    """Names in a Redis server; objects with the same server and database share them.

    Names expire by the server's clock alone. A server without persistence forgets all names when
    it restarts.

    Args:
      url: `redis://[user:password@]host[:port][/database]`, `rediss://...` for TLS, or
        `unix:///path/of/socket[?db=database]`.
      timeout: The longest wait for one answer, in seconds.
      **options: Of `NameRegistry`: who, poll_seconds.

    Raises:
      errors.MissingExtraError: If the package redis is not installed.
      errors.ConfigError: If the URL cannot be understood.
      RegistryUnavailableError: If no server answers.
    """

    def __init__(self, url: str, *, timeout: float = 5.0, **options) -> None:
        super().__init__(**options)
        redis = extras.require("redis", "redis")
        backoff = extras.require("redis.backoff", "redis")
        retry = extras.require("redis.retry", "redis")
        self._place = redaction.redacted(url)
        self._error = redis.exceptions.RedisError
        self._timeout = timeout
        self._calls_changed = threading.Condition()
        self._calls = 0
        self._disconnected = False
        self._damaged: set[str] = set()  # Names that were warned of.
        try:
            self._client = redis.Redis.from_url(
                url,
                decode_responses=True,
                encoding_errors="replace",  # Whatever somebody else has put there.
                socket_timeout=timeout,
                socket_connect_timeout=timeout,
                retry=retry.Retry(backoff.ExponentialBackoff(cap=0.5, base=0.05), _RETRIES),
            )
        except ValueError as error:
            raise errors.ConfigError(
                f"the registry {self._place} cannot be understood: {error}; write it like "
                "redis://host:6379/0"
            ) from error
        self._create_script = self._client.register_script(_CREATE)
        self._remove_script = self._client.register_script(_REMOVE)
        self._refresh_script = self._client.register_script(_REFRESH)
        self._update_script = self._client.register_script(_UPDATE)
        self._take_script = self._client.register_script(_TAKE)
        try:
            with self._asking():
                self._client.ping()
        except BaseException:
            self._client.close()
            raise

    def __str__(self) -> str:
        return f"redis registry {self._place}"

    def _create(self, name: str, entry: entries.Entry, replace: bool) -> bool:
        # The stamp tells our own entry from others if the answer was lost and SET was repeated.
        stored = _encoded(entry, stamp=uuid.uuid4().hex)
        arguments = [stored, "1" if replace else "0", _milliseconds(entry.ttl) or ""]
        with self._asking():
            done = self._create_script([_key(name)], arguments)
            return bool(done) or self._stored([_key(name)])[0] == stored

    def _read(self, name: str) -> entries.Entry | None:
        with self._asking():
            return self._decoded(name, self._stored([_key(name)])[0])

    def _renew(self, name: str, owner: str, value: str | None) -> entries.Outcome:
        with self._asking():
            if value is None:
                return _OUTCOMES[self._refresh_script([_key(name)], [owner])[0]]
            return _OUTCOMES[self._update_script([_key(name)], [owner, value])]

    def _renew_all(self, names: Sequence[str], owner: str) -> list[entries.Outcome]:
        with self._asking():
            return [
                _OUTCOMES[code]
                for code in self._refresh_script([_key(name) for name in names], [owner])
            ]

    def _remove(self, name: str, owner: str) -> entries.Outcome:
        with self._asking():
            return _OUTCOMES[self._remove_script([_key(name)], [owner])]

    def _take(self, name: str) -> entries.Entry | None:
        with self._asking():
            return self._decoded(name, self._take_script([_key(name)]))

    def _scan(self, prefix: str) -> dict[str, entries.Entry]:
        with self._asking():
            keys = self._keys(prefix)
            stored = self._stored(keys) if keys else []
        names = [key[len(KEY_PREFIX) :] for key in keys]
        found = {name: self._decoded(name, text) for name, text in zip(names, stored)}
        return {name: entry for name, entry in found.items() if entry is not None}

    def _clear(self, prefix: str) -> int:
        with self._asking():
            keys = self._keys(prefix)
            return self._client.delete(*keys) if keys else 0

    def _disconnect(self) -> None:
        with self._calls_changed:
            self._disconnected = True
            # The client fails in odd ways if it is closed while other threads use it.
            self._calls_changed.wait_for(lambda: self._calls == 0, self._timeout)
        self._client.close()

    def _stored(self, keys: Sequence[str]) -> list[str | None]:
        """Returns the texts of keys; None where there is none, or something else."""
        return self._client.mget(keys)

    def _decoded(self, name: str, stored: str | None) -> entries.Entry | None:
        if stored is None:
            return None
        try:
            owner, ttl, _, value = stored.split("\n", 3)
            return entries.Entry(value, owner, int(ttl) / 1000 if ttl else None)
        except ValueError:
            if name not in self._damaged:
                self._damaged.add(name)
                logging.warning("%s in %s is not an entry of ours: it is skipped", name, self)
            return None

    def _keys(self, prefix: str) -> list[str]:
        # Names contain no character that is special in a pattern.
        found = set(self._client.scan_iter(f"{KEY_PREFIX}{prefix}*", count=_SCAN_COUNT))
        return [key for key in found if entries.is_beneath(key[len(KEY_PREFIX) :], prefix)]

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        with self._calls_changed:
            if self._disconnected:
                raise registry.NamingError(f"{self} was closed by {self.who} during this call")
            self._calls += 1
        try:
            yield
        except self._error as error:
            raise registry.RegistryUnavailableError(
                f"{self} does not answer {self.who}: {error}; is the server running there, and "
                "does a firewall let this machine through?"
            ) from error
        finally:
            with self._calls_changed:
                self._calls -= 1
                self._calls_changed.notify_all()


def _key(name: str) -> str:
    return KEY_PREFIX + name


def _milliseconds(ttl: float | None) -> int:
    return 0 if ttl is None else max(1, round(1000 * ttl))


def _encoded(entry: entries.Entry, *, stamp: str) -> str:
    return f"{entry.owner}\n{_milliseconds(entry.ttl) or ''}\n{stamp}\n{entry.value}"
