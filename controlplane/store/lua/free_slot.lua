-- ARGV: id, news. Needs no intact store: a slot that is not there is free.
if redis.call('ZREM', P .. 'slots', ARGV[1]) == 1 then redis.call('PUBLISH', P .. 'feed', ARGV[2]) end
return 1
