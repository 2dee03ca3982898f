-- Store.rebuilt. ARGV: the name of the restored content. Returns 1: the store is intact; 0: it was emptied again since
-- the rebuild began.
if redis.call('GET', P .. 'intact') == ARGV[1] then return 1 end
if redis.call('HGET', P .. 'rebuild', 'filling') ~= ARGV[1] then return 0 end
redis.call('SET', P .. 'intact', ARGV[1])
redis.call('DEL', P .. 'rebuild')
redis.call('SET', P .. 'grouped', '0', 'NX')
return 1
