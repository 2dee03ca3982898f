-- Store.take_slot; slots.py has the rule. `per_node` is the limit of one node (0: none).
-- Returns {1, node to avoid, ...}, {2, ...} if the next start would get none, {0}, or {0, node}: `slot_for`.
-- args: now:number id limit:number until_ms per_node:number placement_key replica more:number
if not intact() then return redis.error_reply('LOST') end
local slots, wanting = P .. 'slots', table.concat({a.replica, a.limit, a.per_node, a.placement_key}, '\n')
redis.call('ZREMRANGEBYSCORE', slots, '-inf', a.now)
redis.call('ZREM', slots, 'kept:' .. a.replica)
redis.call('ZREM', P .. 'wanting', wanting)

local answer, where = slot_for(a.id, a.now, a.limit, a.per_node, a.placement_key)
if answer[1] == 1 then
  redis.call('ZADD', slots, a.until_ms, a.id)
  redis.call('HDEL', P .. 'preferences', a.id)
  if #answer > 1 and not where[a.id] then
    local nodes = '\n' .. table.concat(answer, '\n', 2) .. '\n\n'
    redis.call('HSET', P .. 'preferences', a.id, nodes .. a.placement_key)
  end
  if a.more == 1 and slot_for('', a.now, a.limit, a.per_node, a.placement_key)[1] == 0 then answer[1] = 2 end
end
if answer[1] ~= 1 then redis.call('ZADD', P .. 'wanting', a.now, wanting) end
return answer
