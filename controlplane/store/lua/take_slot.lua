-- Store.take_slot; slots.py has the rule. `per_node` is the limit of one node (0: none).
-- Returns {1, node to avoid, ...}, {0}, or {0, node}: such starts are held until that node is below its limit.
-- args: now id limit:number until_ms per_node:number placement_key
if not intact() then return redis.error_reply('LOST') end
local slots = P .. 'slots'
redis.call('ZREMRANGEBYSCORE', slots, '-inf', a.now)
local on, unplaced, busiest = {}, 0, 0
if a.per_node > 0 then on, unplaced = starts() end
for _, count in pairs(on) do busiest = math.max(busiest, count) end

local function refusal()
  if redis.call('ZSCORE', slots, a.id) then return nil end
  if redis.call('ZCARD', slots) >= a.limit then return {0} end
  if a.per_node == 0 then return nil end
  local node = redis.call('HGET', P .. 'held', a.placement_key)
  if node and (on[node] or 0) >= a.per_node then return {0, node} end
  if node then redis.call('HDEL', P .. 'held', a.placement_key) end
  if unplaced > 0 and unplaced + busiest >= a.per_node then return {0} end
end

local refused = refusal()
if refused then
  redis.call('SET', P .. 'wanted', '1')
  return refused
end
redis.call('ZADD', slots, a.until_ms, a.id)
local answer = {1}
for node, count in pairs(on) do
  if a.per_node > 0 and count >= a.per_node then answer[#answer + 1] = node end
end
return answer
