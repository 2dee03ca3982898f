-- Store.claim_rebuild. Returns 'intact', 'ours' or 'theirs', and the name of the content that is there or that is being
-- restored.
-- args: now:number holder ttl:number
local content_id = redis.call('GET', P .. 'intact')
if content_id then return {'intact', content_id} end
local time = redis.call('TIME')
redis.call('HSETNX', P .. 'rebuild', 'filling', time[1] .. '.' .. time[2])
local held = redis.call('HMGET', P .. 'rebuild', 'holder', 'until', 'filling')
if held[1] and held[1] ~= a.holder and tonumber(held[2]) > a.now then return {'theirs', held[3]} end
redis.call('HSET', P .. 'rebuild', 'holder', a.holder, 'until', a.now + a.ttl)
return {'ours', held[3]}
