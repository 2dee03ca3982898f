-- ARGV: what this filling of the store is called. It holds what it should.
redis.call('SET', P .. 'intact', ARGV[1])
redis.call('DEL', P .. 'rebuild')
return 1
