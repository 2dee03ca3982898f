-- Store.place_slot. ARGV: id, node, until, limit of one node (0: none), placement key, message. Publishes the message
-- if a start was refused a slot: a start that has a node leaves more room for those that have none.
if not intact() then return redis.error_reply('LOST') end
local id, node, per_node, key = ARGV[1], ARGV[2], tonumber(ARGV[4]), ARGV[5]
-- A start that is over takes no slot; its record may have been stored before this call came.
if not UNREADY[redis.call('HGET', P .. 's:' .. id, 'state') or ''] then return 0 end
local sent = redis.call('ZSCORE', P .. 'slots', id)
redis.call('ZADD', P .. 'slots', ARGV[3], id)
redis.call('HSET', P .. 'placed', id, node)
if sent and per_node > 0 and starts()[node] > per_node then
  redis.call('HSET', P .. 'held', key, node)
  -- So that placement keys which are not used again do not accumulate.
  redis.call('PEXPIRE', P .. 'held', HELD_MS)
end
if redis.call('DEL', P .. 'wanted') == 1 then redis.call('PUBLISH', P .. 'feed', ARGV[6]) end
return 1
