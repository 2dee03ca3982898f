-- Store.take_slot; slots.py has the rule. ARGV: now, id, limit, until, limit of one node (0: none), placement key.
-- Returns {1, node to avoid, ...}, {0}, or {0, node}: such starts are held until that node is below its limit.
if not intact() then return redis.error_reply('LOST') end
local slots, id, limit, per_node, key = P .. 'slots', ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[5]), ARGV[6]
redis.call('ZREMRANGEBYSCORE', slots, '-inf', ARGV[1])
local on, unplaced, busiest = {}, 0, 0
if per_node > 0 then on, unplaced = starts() end
for _, count in pairs(on) do busiest = math.max(busiest, count) end

local function refusal()
  if redis.call('ZSCORE', slots, id) then return nil end
  if redis.call('ZCARD', slots) >= limit then return {0} end
  if per_node == 0 then return nil end
  local node = redis.call('HGET', P .. 'held', key)
  if node and (on[node] or 0) >= per_node then return {0, node} end
  if node then redis.call('HDEL', P .. 'held', key) end
  if unplaced > 0 and unplaced + busiest >= per_node then return {0} end
end

local refused = refusal()
if refused then
  redis.call('SET', P .. 'wanted', '1')
  return refused
end
redis.call('ZADD', slots, ARGV[4], id)
local answer = {1}
for node, count in pairs(on) do
  if per_node > 0 and count >= per_node then answer[#answer + 1] = node end
end
return answer
