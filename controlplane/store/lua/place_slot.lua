-- ARGV: id, node, until, limit of one node (0: none), placement key, news. Told when somebody went without a slot: one
-- that has a node leaves more room for those that have none.
if not intact() then return redis.error_reply('LOST') end
local id, node, per_node, key = ARGV[1], ARGV[2], tonumber(ARGV[4]), ARGV[5]
-- A start that is over takes none; its record may have come first.
if not UNREADY[redis.call('HGET', P .. 's:' .. id, 'state') or ''] then return 0 end
local sent = redis.call('ZSCORE', P .. 'slots', id)
redis.call('ZADD', P .. 'slots', ARGV[3], id)
redis.call('HSET', P .. 'placed', id, node)
if sent and per_node > 0 and starts()[node] > per_node then
  redis.call('HSET', P .. 'held', key, node)
  -- Keys that nobody asks for again do not pile up.
  redis.call('PEXPIRE', P .. 'held', HELD_MS)
end
if redis.call('DEL', P .. 'wanted') == 1 then redis.call('PUBLISH', P .. 'feed', ARGV[6]) end
return 1
