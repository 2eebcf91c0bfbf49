package localhost

import (
	"net"
	"sync"
)

// pair is a connection of a client, and the one to the endpoint.
type pair struct {
	client, endpoint *net.TCPConn
	once             sync.Once
}

// copy moves data both ways until both ends have closed their side, or one has reset the
// connection.
func (c *pair) copy() {
	var answers sync.WaitGroup
	answers.Go(func() { c.move(c.client, c.endpoint) })
	c.move(c.endpoint, c.client)
	answers.Wait()
	c.client.Close()
	c.endpoint.Close()
}

// move moves data in one direction, and passes on its end: the other direction
// continues. The kernel moves the data: between two TCP connections, ReadFrom is
// splice(2).
func (c *pair) move(to, from *net.TCPConn) {
	_, err := to.ReadFrom(from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		c.reset()
	}
}

// reset resets both connections, which ends both directions.
func (c *pair) reset() {
	c.once.Do(func() {
		reset(c.client)
		reset(c.endpoint)
	})
}
