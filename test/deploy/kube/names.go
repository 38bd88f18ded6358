package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A cluster knows which pods stand behind each Service, as kube-proxy and CoreDNS do.
type cluster struct {
	services atomic.Pointer[map[string][]string] // NAMESPACE/NAME to host:port
}

// pods are the addresses of a Service's ready pods.
func (c *cluster) pods(namespace, service string) []string {
	if all := c.services.Load(); all != nil {
		return (*all)[namespace+"/"+service]
	}
	return nil
}

// watch keeps what is known up to date until ctx ends.
func (c *cluster) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.refresh(ctx); err != nil && ctx.Err() == nil {
			fmt.Println("endpoints:", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (c *cluster) refresh(ctx context.Context) error {
	out, err := run(ctx, "", "kubectl", "get", "endpointslices", "--all-namespaces", "-o", "json")
	if err != nil {
		return err
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Namespace string
				Labels    map[string]string
			}
			Ports     []struct{ Port int }
			Endpoints []struct {
				Addresses  []string
				Conditions struct{ Ready *bool }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return fmt.Errorf("read endpoints: %w", err)
	}
	found := map[string][]string{}
	for _, slice := range list.Items {
		name := slice.Metadata.Namespace + "/" + slice.Metadata.Labels["kubernetes.io/service-name"]
		for _, e := range slice.Endpoints {
			if len(slice.Ports) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				found[name] = append(found[name], net.JoinHostPort(e.Addresses[0], strconv.Itoa(slice.Ports[0].Port)))
			}
		}
	}
	c.services.Store(&found)
	return nil
}

// serveNames is a name server for pods: SERVICE.NAMESPACE.svc is the addresses of the
// Service's ready pods. All other names are unknown.
func (c *cluster) serveNames(ctx context.Context, address string) error {
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
			if answer, err := c.answer(question[:n]); err == nil {
				_, _ = conn.WriteTo(answer, from) // it asks again
			}
		}
	}()
	return nil
}

func (c *cluster) answer(message []byte) ([]byte, error) {
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
	for _, pod := range c.pods(parts[1], parts[0]) {
		host, _, err := net.SplitHostPort(pod)
		if ip := net.ParseIP(host).To4(); err == nil && ip != nil && q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte(ip)},
			})
		}
	}
	return m.Pack()
}
