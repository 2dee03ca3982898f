-- ARGV: the filling that was made. Answers 1: it holds what it should; 0: the store was emptied since it was begun.
if redis.call('GET', P .. 'intact') == ARGV[1] then return 1 end
if redis.call('HGET', P .. 'rebuild', 'filling') ~= ARGV[1] then return 0 end
redis.call('SET', P .. 'intact', ARGV[1])
redis.call('DEL', P .. 'rebuild')
redis.call('SET', P .. 'grouped', '0', 'NX')
return 1
