-- ARGV: holder. The store holds what it should.
redis.call('SET', P .. 'intact', ARGV[1])
redis.call('DEL', P .. 'rebuild')
return 1
