// Stands for hostpathplugin in the image of Kubernetes' test driver, whose only use there is this:
// who connects to the socket --endpoint is joined with who connects to the port --proxy-endpoint.
package main

import (
	"flag"
	"io"
	"log"
	"net"
	"os"
	"strings"
)

func main() {
	endpoint := flag.String("endpoint", "", "path of the socket")
	proxyEndpoint := flag.String("proxy-endpoint", "", "tcp://address:port")
	flag.Int("v", 0, "ignored")
	flag.Parse()
	os.Remove(*endpoint)
	clients := listen("unix", *endpoint)
	servers := listen("tcp", strings.TrimPrefix(*proxyEndpoint, "tcp://"))
	for {
		client := accept(clients)
		go join(client, accept(servers))
	}
}

func listen(network, address string) net.Listener {
	listener, err := net.Listen(network, address)
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func accept(listener net.Listener) net.Conn {
	connection, err := listener.Accept()
	if err != nil {
		log.Fatal(err)
	}
	return connection
}

func join(client, server net.Conn) {
	ended := make(chan struct{}, 2)
	pass := func(to, from net.Conn) {
		io.Copy(to, from)
		ended <- struct{}{}
	}
	go pass(server, client)
	go pass(client, server)
	<-ended
	client.Close()
	server.Close()
}
