package proxy

import (
	"sync"
	"time"
)

// idlePool holds the connections that wait for their next request, the latest used last.
// The latest is taken first, so that those a burst left over grow old and are closed.
type idlePool struct {
	max  int
	idle time.Duration

	mu    sync.Mutex
	conns []*oneShotConn // ordered by since
	timer *time.Timer    // runs while conns is not empty
}

// get takes a connection that is alive, or returns nil.
func (p *idlePool) get() *oneShotConn {
	for {
		c := p.pop()
		if c == nil || (time.Since(c.since) < p.idle && c.alive()) {
			return c
		}
		c.abort()
	}
}

func (p *idlePool) pop() *oneShotConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.conns) - 1
	if last < 0 {
		return nil
	}
	c := p.conns[last]
	p.conns[last] = nil
	p.conns = p.conns[:last]
	return c
}

// put keeps a connection, or closes it if there are enough.
func (p *idlePool) put(c *oneShotConn) {
	c.since = time.Now()
	p.mu.Lock()
	full := len(p.conns) >= p.max
	if !full {
		p.conns = append(p.conns, c)
		if p.timer == nil {
			p.timer = time.AfterFunc(p.idle, p.expire)
		}
	}
	p.mu.Unlock()
	if full {
		c.abort()
	}
}

// expire closes what has been idle for too long, and comes back for the next.
func (p *idlePool) expire() {
	p.mu.Lock()
	old := 0
	for old < len(p.conns) && time.Since(p.conns[old].since) >= p.idle {
		old++
	}
	expired := append([]*oneShotConn(nil), p.conns[:old]...)
	rest := copy(p.conns, p.conns[old:])
	clear(p.conns[rest:])
	p.conns = p.conns[:rest]
	if rest > 0 {
		p.timer.Reset(p.idle - time.Since(p.conns[0].since))
	} else {
		p.timer = nil
	}
	p.mu.Unlock()
	for _, c := range expired {
		_ = c.stream.Close()
	}
}

func (p *idlePool) closeAll() {
	p.mu.Lock()
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for _, c := range conns {
		_ = c.stream.Close()
	}
}
