package main

import (
	"context"
	"fmt"
	"net"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// serveNames is a name server for pods: SERVICE.NAMESPACE.svc is the addresses of the
// Service's ready pods. All other names are unknown.
func serveNames(ctx context.Context, address string) error {
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", address)
	if err != nil {
		return fmt.Errorf("listen for pods' questions: %w", err)
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	go func() {
		question := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(question)
			if err != nil {
				return
			}
			if answer, err := answerName(ctx, question[:n]); err == nil {
				_, _ = conn.WriteTo(answer, from) // it asks again
			}
		}
	}()
	return nil
}

func answerName(ctx context.Context, message []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(message); err != nil || len(m.Questions) != 1 {
		return nil, fmt.Errorf("not a question: %w", err)
	}
	q := m.Questions[0]
	m.Response, m.Authoritative, m.RecursionAvailable = true, true, true
	m.Answers, m.Additionals = nil, nil
	name := strings.TrimSuffix(strings.TrimSuffix(q.Name.String(), "."), ".cluster.local")
	parts := strings.Split(name, ".")
	if len(parts) != 3 || parts[2] != "svc" {
		m.RCode = dnsmessage.RCodeNameError
		return m.Pack()
	}
	in := installation{namespace: parts[1]}
	addresses, err := in.endpoints(ctx, parts[0])
	if err != nil {
		m.RCode = dnsmessage.RCodeServerFailure
		return m.Pack()
	}
	for _, a := range addresses {
		host, _, err := net.SplitHostPort(a)
		if ip := net.ParseIP(host).To4(); err == nil && ip != nil && q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte(ip)},
			})
		}
	}
	return m.Pack()
}
