package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A till is a gRPC service: Pay is unary, Count answers each message of a stream.
type till struct {
	paid, counted atomic.Int32
	began, goOn   chan struct{} // for the call "slow"
}

//nolint:revive // the order of grpc.MethodHandler
func (s *till) pay(_ any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	in := new(wrapperspb.StringValue)
	if err := read(in); err != nil {
		return nil, err
	}
	n := s.paid.Add(1)
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-head", "h"))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-tail", itoa(int(n)), "x-blob-bin", allBytes()))
	if in.Value == "slow" {
		s.began <- struct{}{}
		select {
		case <-s.goOn:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if in.Value == "too much" {
		return nil, status.Error(codes.FailedPrecondition, "the account is empty: 100% ✗")
	}
	return wrapperspb.String(in.Value + " " + itoa(int(n))), nil
}

func (s *till) count(_ any, stream grpc.ServerStream) error {
	for {
		in := new(wrapperspb.StringValue)
		err := stream.RecvMsg(in)
		if errors.Is(err, io.EOF) {
			stream.SetTrailer(metadata.Pairs("x-tail", "end"))
			return nil
		}
		if err != nil {
			return err
		}
		s.counted.Add(1)
		if err := stream.SendMsg(wrapperspb.String("seen " + in.Value)); err != nil {
			return err
		}
	}
}

func newTill(t *testing.T) (s *till, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = &till{began: make(chan struct{}, 9), goOn: make(chan struct{})}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "shop.Till", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Pay", Handler: s.pay}},
		Streams: []grpc.StreamDesc{{StreamName: "Count", Handler: s.count, ServerStreams: true, ClientStreams: true}},
	}, s)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return s, l.Addr().String()
}

const grpcRoutes = `  - {name: pay, path: /shop.Till/Pay}`

func (p *proxy) grpc(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+p.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A unary call with a key is executed once, and replayed with its trailers.
func TestFaithfulUnaryGRPC(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		till, addr := newTill(t)
		p := start(t, setup{store: s, upstream: "h2c://" + addr, routes: grpcRoutes})
		conn := p.grpc(t)
		for n, what := range []string{"tea", "too much"} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", newKey())
			for i, mark := range []int{0, 1, 1} {
				var head, tail metadata.MD
				out := new(wrapperspb.StringValue)
				err := conn.Invoke(ctx, "/shop.Till/Pay", wrapperspb.String(what), out, grpc.Header(&head), grpc.Trailer(&tail))
				if what == "tea" && (err != nil || out.Value != "tea 1") {
					t.Errorf("answer %d: %q, %v", i, out.Value, err)
				}
				if got := status.Convert(err); what != "tea" && (got.Code() != codes.FailedPrecondition || got.Message() != "the account is empty: 100% ✗") {
					t.Errorf("answer %d: %v", i, err)
				}
				both := metadata.Join(head, tail) // an answer that is nothing but trailers has them in its head
				if len(both.Get("x-head")) != 1 || both.Get("x-tail")[0] != itoa(n+1) || both.Get("x-blob-bin")[0] != allBytes() || len(both.Get("x-idempotent-replay")) != mark {
					t.Errorf("%s, answer %d: head %v, trailers %v", what, i, head, tail)
				}
			}
			err := conn.Invoke(ctx, "/shop.Till/Pay", wrapperspb.String("another"), new(wrapperspb.StringValue))
			if err == nil {
				t.Errorf("another call with the key of %q is answered", what)
			}
		}
		if got := till.paid.Load(); got != 2 {
			t.Errorf("%d calls were executed, want 2", got)
		}
	})
}

// A client that gives up by cancelling ends its waiting, not the call: its retry finds the
// answer. A deadline ends the call too, for the service hears of it: it is not executed again,
// and what a retry gets is that it is over, or that nobody knows. (docs/cookbook.md tells it.)
func TestFaithfulGRPCGivingUp(t *testing.T) {
	t.Parallel()
	till, addr := newTill(t)
	p := start(t, setup{store: memory(), upstream: "h2c://" + addr, routes: `  - {name: pay, path: /shop.Till/Pay, in_flight: wait}`})
	conn := p.grpc(t)
	call := func(ctx context.Context) (string, error) {
		out := new(wrapperspb.StringValue)
		err := conn.Invoke(ctx, "/shop.Till/Pay", wrapperspb.String("slow"), out)
		return out.Value, err
	}

	late := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", newKey())
	short, cancel := context.WithTimeout(late, 5*time.Second)
	defer cancel()
	if _, err := call(short); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("with a deadline: %v", err)
	}
	<-till.began
	if _, err := call(late); status.Code(err) != codes.DeadlineExceeded && !strings.Contains(status.Convert(err).Message(), "outcome_unknown") {
		t.Errorf("after a deadline: %v", err)
	}

	ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", newKey())
	patient, giveUp := context.WithCancel(ctx)
	go func() {
		<-till.began
		giveUp()
	}()
	if _, err := call(patient); status.Code(err) != codes.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	close(till.goOn)
	if got, err := call(ctx); err != nil || got != "slow 2" || till.paid.Load() != 2 {
		t.Errorf("after cancelling: %q, %v, %d calls executed", got, err, till.paid.Load())
	}
}

// Streams pass in both directions, message by message.
func TestFaithfulStreamingGRPC(t *testing.T) {
	t.Parallel()
	till, addr := newTill(t)
	p := start(t, setup{store: memory(), upstream: "h2c://" + addr, routes: grpcRoutes})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", newKey())
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for range 2 {
		stream, err := p.grpc(t).NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/shop.Till/Count")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			out := new(wrapperspb.StringValue)
			if err := stream.SendMsg(wrapperspb.String(itoa(i))); err != nil {
				t.Fatal(err)
			}
			if err := stream.RecvMsg(out); err != nil || out.Value != "seen "+itoa(i) {
				t.Fatalf("message %d: %q, %v", i, out.Value, err)
			}
		}
		_ = stream.CloseSend()
		if err := stream.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) || stream.Trailer().Get("x-tail")[0] != "end" {
			t.Errorf("the end: %v, trailers %v", err, stream.Trailer())
		}
	}
	if got := till.counted.Load(); got != 40 {
		t.Errorf("%d messages arrived, want 40", got)
	}
}
