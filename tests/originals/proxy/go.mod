module koordinator.test/proxy

go 1.25.0
