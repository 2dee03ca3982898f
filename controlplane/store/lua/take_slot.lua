-- ARGV: now, id, limit, until. Answers 1 when it has a slot.
if not intact() then return redis.error_reply('LOST') end
local slots, id = P .. 'slots', ARGV[2]
redis.call('ZREMRANGEBYSCORE', slots, '-inf', ARGV[1])
if not redis.call('ZSCORE', slots, id) and redis.call('ZCARD', slots) >= tonumber(ARGV[3]) then
  redis.call('SET', P .. 'wanted', '1')
  return 0
end
redis.call('ZADD', slots, ARGV[4], id)
return 1
