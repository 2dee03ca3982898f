-- Store.claim_rebuild. ARGV: now, holder, ttl. Returns 'intact', 'ours' or 'theirs', and the name of the content that
-- is there or that is being restored.
local filling = redis.call('GET', P .. 'intact')
if filling then return {'intact', filling} end
local time = redis.call('TIME')
redis.call('HSETNX', P .. 'rebuild', 'filling', time[1] .. '.' .. time[2])
local held = redis.call('HMGET', P .. 'rebuild', 'holder', 'until', 'filling')
if held[1] and held[1] ~= ARGV[2] and tonumber(held[2]) > tonumber(ARGV[1]) then return {'theirs', held[3]} end
redis.call('HSET', P .. 'rebuild', 'holder', ARGV[2], 'until', ARGV[1] + ARGV[3])
return {'ours', held[3]}
