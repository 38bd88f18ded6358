package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const callers = 30

// A load is keyed traffic to a Service. Each key is sent twice. A connection goes to a pod that
// the Service has when it is opened, as kube-proxy leads it; every second caller keeps its
// connections, wherever that pod is by then, the others open one for each request. The client
// repeats nothing by itself.
type load struct {
	service   string
	executes  string // selector of the pods whose log tells each execution
	container string // and the container in them
	deaths    bool   // requests may fail, and are sent again until an answer says what is known

	before    int64    // numbers up to this one are earlier loads'
	executed  sync.Map // the amount of a payment, which is its key's number, to an *atomic.Int64
	next      atomic.Int64
	answered  atomic.Int64 // keys that got 201, twice the same
	unknown   atomic.Int64 // keys whose outcome is said to be unknown
	failures  atomic.Int64 // requests that failed
	mu        sync.Mutex
	complaint error
}

// number tells the keys of all loads apart.
var number atomic.Int64

// underLoad does something under load and then counts.
func (in *installation) underLoad(ctx context.Context, l *load, do func() error) error {
	follow, stopFollowing := context.WithCancel(ctx)
	defer stopFollowing()
	l.before = number.Load()
	go l.count(follow, in)
	calling, stopCalling := context.WithCancel(ctx)
	var done sync.WaitGroup
	for i := range callers {
		done.Go(func() {
			c := l.caller(in, i%2 == 0)
			defer c.CloseIdleConnections()
			for calling.Err() == nil {
				l.pay(ctx, c)
			}
		})
	}
	time.Sleep(3 * time.Second)
	err := do()
	time.Sleep(3 * time.Second)
	stopCalling()
	done.Wait()
	time.Sleep(2 * time.Second) // for the last lines of the logs
	return errors.Join(err, l.verdict())
}

// verdict says what the load came to.
func (l *load) verdict() error {
	executions, twice := 0, 0
	l.executed.Range(func(_, n any) bool {
		executions++
		if n.(*atomic.Int64).Load() > 1 {
			twice++
		}
		return true
	})
	fmt.Printf("%d keys, each sent twice: %d answered 201 both times alike, %d outcome_unknown; %d failed requests; %d executed, %d of them more than once\n",
		l.next.Load(), l.answered.Load(), l.unknown.Load(), l.failures.Load(), executions, twice)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.complaint != nil:
		return l.complaint
	case twice > 0:
		return errors.New("EXECUTED TWICE")
	case !l.deaths && (l.failures.Load() > 0 || l.unknown.Load() > 0):
		return errors.New("requests failed")
	case l.next.Load() == 0 || l.answered.Load()+l.unknown.Load() != l.next.Load():
		return errors.New("keys without an answer")
	case int64(executions) < l.answered.Load() || int64(executions) > l.next.Load():
		return errors.New("executions and answers don't fit")
	default:
		return nil
	}
}

func (l *load) complain(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.complaint == nil {
		l.complaint = fmt.Errorf(format, args...)
	}
}

// pay sends one key until it is answered, and again.
func (l *load) pay(ctx context.Context, c *http.Client) {
	n := number.Add(1)
	l.next.Add(1)
	first := l.until(ctx, c, n)
	if first.code == "outcome_unknown" {
		l.unknown.Add(1)
		return
	}
	second := l.until(ctx, c, n)
	if first.status != 201 || second.status != 201 || !bytes.Equal(first.body, second.body) || !second.replayed {
		l.complain("key %d: %d %s, then %d %s (replayed: %v)", n, first.status, first.body, second.status, second.body, second.replayed)
		return
	}
	l.answered.Add(1)
}

type answer struct {
	status   int
	code     string
	replayed bool
	body     []byte
}

// until sends a payment until an answer is final.
func (l *load) until(ctx context.Context, c *http.Client, n int64) answer {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		a, err := post(ctx, c, l.service, n, "kube-"+strconv.FormatInt(n, 10))
		switch {
		case err != nil:
			l.failures.Add(1)
			if !l.deaths {
				l.complain("key %d: %v", n, err)
			}
		case a.code == "in_progress" || l.deaths && a.status >= 500:
		default:
			return a
		}
	}
	return answer{}
}

// caller is a client whose connections go to the Service's pods.
func (l *load) caller(in *installation, leaves bool) *http.Client {
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: leaves, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		pods := in.cluster.pods(in.namespace, l.service)
		if len(pods) == 0 {
			return nil, errors.New("the Service has no pods")
		}
		return (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, network, pods[rand.IntN(len(pods))])
	}}}
}

var once = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func post(ctx context.Context, c *http.Client, host string, amount int64, key string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+host+"/payments?slow=20ms", bytes.NewReader(fmt.Appendf(nil, `{"amount": %d}`, amount)))
	if err != nil {
		return answer{}, err
	}
	req.GetBody = nil // or Go's client would repeat a request whose connection ends
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := c.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	var problem struct{ Code string }
	_ = json.Unmarshal(body, &problem) // an answer of the service has none
	return answer{res.StatusCode, problem.Code, res.Header.Get("X-Idempotent-Replay") == "true", body}, err
}

func postWithoutKey(ctx context.Context, pod string) int {
	a, err := post(ctx, once, pod, 0, "")
	if err != nil {
		return 0
	}
	return a.status
}

var charge = regexp.MustCompile(`charge no\. \d+, \w+, amount (\d+)`)

// count follows the logs of all pods that execute, also of those that come later.
func (l *load) count(ctx context.Context, in *installation) {
	followed := map[string]bool{}
	for ctx.Err() == nil {
		pods, _ := in.pods(ctx, l.executes)
		for _, pod := range pods {
			if !followed[pod] {
				followed[pod] = true
				go l.follow(ctx, in, pod)
			}
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func (l *load) follow(ctx context.Context, in *installation, pod string) {
	cmd := exec.CommandContext(ctx, "kubectl", "--namespace", in.namespace, "logs", "--follow", pod, "-c", l.container)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		l.complain("follow the log of %s: %w", pod, err)
		return
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		m := charge.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		if number, err := strconv.ParseInt(m[1], 10, 64); err == nil && number > l.before {
			n, _ := l.executed.LoadOrStore(number, new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
		}
	}
	_ = cmd.Wait() // it ends with its pod
}
