-- ARGV: a row, then the limit. Answers {what, record or count}.
if not intact() then return redis.error_reply('LOST') end
local new, limit = row(), tonumber(ARGV[15])
trim(new.now)
local old = known(new.key, new.now) or read(new.id)
-- The caller's own, when it repeats after an answer that was lost.
if old and old.id == new.id then return {'admitted', old.record} end
if old then return {'known', old.record} end
if new.key ~= '' and redis.call('ZSCORE', P .. 'withdrawn', new.key) then return {'withdrawn', ''} end
local used = 0
for state, _ in pairs(LIVE) do used = used + tonumber(redis.call('HGET', P .. 'counts', state) or '0') end
if limit > 0 and used >= limit then return {'full', tostring(used)} end
put(new, nil)
return {'admitted', new.record}
