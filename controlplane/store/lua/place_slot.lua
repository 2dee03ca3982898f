-- Store.place_slot. `per_node` is the limit of one node (0: none). A start that has a node leaves more room for those
-- that have none.
-- args: now:number id node until_ms per_node:number placement_key
if not intact() then return redis.error_reply('LOST') end
-- A start that is over takes no slot; its record may have been stored before this call came.
if not UNREADY[redis.call('HGET', P .. 's:' .. a.id, 'state') or ''] then return 0 end
local sent = redis.call('ZSCORE', P .. 'slots', a.id)
local preference = sent and redis.call('HGET', P .. 'preferences', a.id)
redis.call('HDEL', P .. 'preferences', a.id)
if not sent or redis.call('HGET', P .. 'placed', a.id) ~= a.node then redis.call('HSET', P .. 'came', a.id, a.now) end
redis.call('ZADD', P .. 'slots', a.until_ms, a.id)
redis.call('HSET', P .. 'placed', a.id, a.node)
if sent and a.per_node > 0 and may_have(a.node) > a.per_node then
  redis.call('HSET', P .. 'held', a.placement_key, a.node)
  -- So that placement keys which are not used again do not accumulate.
  redis.call('PEXPIRE', P .. 'held', HELD_MS)
  redis.call('DEL', P .. 'fulfilled')
elseif preference then
  local nodes = preference:match('^(.-\n)\n')
  if nodes:find('\n' .. a.node .. '\n', 1, true) then
    redis.call('HDEL', P .. 'fulfilled', a.placement_key)
  else
    redis.call('HINCRBY', P .. 'fulfilled', a.placement_key, 1)
  end
end
wake(a.now)
return 1
