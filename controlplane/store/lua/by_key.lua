-- Store.by_key and Store.withdraw. `key` is owner and key; `withdraw` is '1' to withdraw it if no sandbox has it, for
-- `call` or for all calls (''). Returns the record or ''.
-- args: now:number key withdraw call
if not intact() then return redis.error_reply('LOST') end
trim(a.now)
local old = known(a.key, a.now)
if old then return old.record end
if a.withdraw == '1' then
  redis.call('ZADD', P .. 'withdrawn', 'NX', a.now, a.call == '' and a.key or a.key .. '\n' .. a.call)
  -- Callers can withdraw any number of keys, so beyond this bound the oldest are dropped.
  redis.call('ZREMRANGEBYRANK', P .. 'withdrawn', 0, -MOST_WITHDRAWN - 1)
end
return ''
