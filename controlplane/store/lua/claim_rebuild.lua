-- ARGV: now, holder, ttl. Answers intact, ours or theirs.
if intact() then return 'intact' end
local held = redis.call('HMGET', P .. 'rebuild', 'holder', 'until')
if held[1] and held[1] ~= ARGV[2] and tonumber(held[2]) > tonumber(ARGV[1]) then return 'theirs' end
redis.call('HSET', P .. 'rebuild', 'holder', ARGV[2], 'until', ARGV[1] + ARGV[3])
return 'ours'
