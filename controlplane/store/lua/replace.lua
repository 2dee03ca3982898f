-- Store.replace. ARGV: a row, then the expected version. Returns 1 when it was stored.
if not intact() then return redis.error_reply('LOST') end
local new, expected = row(), ARGV[23]
trim(new.now)
local old = read(new.id)
if not old then return 0 end
-- This call's own write: the call is retried after its answer was lost.
if old.writer == new.writer then return 1 end
if old.version ~= expected then return 0 end
-- A start belongs to the replica that moves it on. A create that joins it at another replica changes the record too.
if old.state == new.state then new.holder = old.holder end
put(new, old)
return 1
