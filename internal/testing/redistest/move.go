package redistest

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Move is a slot on its way from one master to another, as a resharding moves it.
type Move struct {
	From, To *Server

	c    *Cluster
	slot int64
}

// StartMove marks the slot of a key as moving to another master. From then on the old owner sends
// calls for keys that it does not have to the new one (ASK).
func (c *Cluster) StartMove(key string) *Move {
	c.t.Helper()
	m := &Move{From: c.MasterOf(key), c: c}
	for _, master := range c.nodes[:c.masters] {
		if master != m.From {
			m.To = master
		}
	}
	m.slot = m.do(m.From, "CLUSTER", "KEYSLOT", key).(int64)
	m.begin()
	return m
}

// StartBack is [Cluster.StartMove] of the same slot to the master that it came from.
func (m *Move) StartBack() *Move {
	m.c.t.Helper()
	back := &Move{From: m.To, To: m.From, c: m.c, slot: m.slot}
	back.begin()
	return back
}

func (m *Move) begin() {
	m.c.t.Helper()
	m.do(m.To, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.do(m.From, "CLUSTER", "MYID"))
	m.do(m.From, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.do(m.To, "CLUSTER", "MYID"))
}

// Key moves one key. It does nothing if there is none of that name.
func (m *Move) Key(key string) {
	m.c.t.Helper()
	host, port, err := net.SplitHostPort(m.To.Addr())
	if err != nil {
		m.c.t.Fatalf("redistest: Move: %v", err)
	}
	m.do(m.From, "MIGRATE", host, port, key, 0, queryLimit.Milliseconds())
}

// Rest moves all keys that are left, one after the other with a pause before each.
func (m *Move) Rest(pause time.Duration) {
	m.c.t.Helper()
	for {
		keys := m.do(m.From, "CLUSTER", "GETKEYSINSLOT", m.slot, 1).([]any)
		if len(keys) == 0 {
			return
		}
		time.Sleep(pause)
		m.Key(keys[0].(string))
	}
}

// Finish gives the slot to its new owner. From then on the old one answers MOVED.
func (m *Move) Finish() {
	m.c.t.Helper()
	id := m.do(m.To, "CLUSTER", "MYID")
	m.do(m.To, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
	m.do(m.From, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
}

// Import has a master take some slot of another one, as a whole where the engine can do that: Redis
// by CLUSTER MIGRATION, Valkey by CLUSTER MIGRATESLOTS.
func (c *Cluster) Import(to *Server) {
	c.t.Helper()
	key := "x"
	for c.MasterOf(key) == to {
		key += "x"
	}
	m := &Move{From: c.MasterOf(key), To: to, c: c}
	m.slot = m.do(m.From, "CLUSTER", "KEYSLOT", key).(int64)
	ctx, cancel := within(c.t, startLimit)
	defer cancel()
	pulled := to.client.Do(ctx, "CLUSTER", "MIGRATION", "IMPORT", m.slot, m.slot).Err()
	if pulled != nil {
		pulled = m.From.client.Do(ctx, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", m.slot, m.slot, "NODE", m.do(to, "CLUSTER", "MYID")).Err()
	}
	if pulled != nil {
		m.begin()
		m.Rest(0)
		m.Finish()
	}
	must(c.t, "Import", await(c.t, failoverLimit, func(ctx context.Context) error {
		if master, err := c.findMaster(ctx, key); err != nil || master != to {
			return fmt.Errorf("%s does not have the slot %d yet: %w", to.Addr(), m.slot, err)
		}
		return nil
	}))
}

func (m *Move) do(server *Server, words ...any) any {
	m.c.t.Helper()
	ctx, cancel := within(m.c.t, startLimit)
	defer cancel()
	answer, err := server.client.Do(ctx, words...).Result()
	if err != nil {
		m.c.t.Fatalf("redistest: Move: %v on %s: %v", words, server.Addr(), err)
	}
	return answer
}
