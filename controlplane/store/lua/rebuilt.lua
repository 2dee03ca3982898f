-- ARGV: what this filling of the store is called. It holds what it should.
redis.call('SET', P .. 'intact', ARGV[1])
redis.call('DEL', P .. 'rebuild')
redis.call('SET', P .. 'grouped', '0', 'NX')
return 1
