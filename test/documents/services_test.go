//go:build unix

package documents

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func listen(t *testing.T, port int) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serveNumbers serves an application that answers each request with its number.
func serveNumbers(t *testing.T, port int) {
	var n atomic.Int32
	app := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s: no. %d\n", r.Method, r.URL.Path, n.Add(1))
	})}
	l := listen(t, port)
	go app.Serve(l)
	t.Cleanup(func() { app.Close() })
}

// serveTill serves gRPC: shop.Till's Pay answers each call with its number.
func serveTill(t *testing.T, port int) {
	var n atomic.Int32
	pay := func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := read(in); err != nil {
			return nil, err
		}
		return wrapperspb.String(fmt.Sprintf("%s: no. %d", in.Value, n.Add(1))), nil
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "shop.Till", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Pay", Handler: pay}},
	}, struct{}{})
	l := listen(t, port)
	go server.Serve(l)
	t.Cleanup(server.Stop)
}
