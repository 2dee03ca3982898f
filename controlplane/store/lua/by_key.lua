-- Store.by_key and Store.withdraw. ARGV: now, owner and key, '1' to withdraw the key if no sandbox has it, for which
-- call ('': for all calls). Returns the record or ''.
if not intact() then return redis.error_reply('LOST') end
local now, key = tonumber(ARGV[1]), ARGV[2]
trim(now)
local old = known(key, now)
if old then return old.record end
if ARGV[3] == '1' then
  redis.call('ZADD', P .. 'withdrawn', 'NX', now, ARGV[4] == '' and key or key .. '\n' .. ARGV[4])
  -- Callers can withdraw any number of keys, so beyond this bound the oldest are dropped.
  redis.call('ZREMRANGEBYRANK', P .. 'withdrawn', 0, -MOST_WITHDRAWN - 1)
end
return ''
