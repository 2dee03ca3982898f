-- Store.replace. Returns 1 when it was stored.
-- args: ROW expected
if not intact() then return redis.error_reply('LOST') end
trim(a.now)
local old = read(a.id)
if not old then return 0 end
-- This call's own write: the call is retried after its answer was lost.
if old.writer == a.writer then return 1 end
if old.version ~= a.expected then return 0 end
-- A start belongs to the replica that moves it on. A create that joins it at another replica changes the record too.
if old.state == a.state then a.holder = old.holder end
put(a, old)
return 1
