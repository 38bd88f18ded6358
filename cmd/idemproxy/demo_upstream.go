package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// paymentsAPI is the sample upstream of the demo: a service that does not deduplicate
// anything, whose side effects can be counted.
//
//	POST /payments            charges, and answers 201 with a new payment
//	POST /payments?slow=3s    the same, but takes its time
//	GET  /payments            how many charges were made
type paymentsAPI struct {
	out io.Writer // a line for every charge

	mu      sync.Mutex
	charges int
}

// maxSlow bounds how long a charge takes.
const maxSlow = 30 * time.Second

func (a *paymentsAPI) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /payments", a.charge)
	mux.HandleFunc("GET /payments", a.count)
	return mux
}

func (a *paymentsAPI) charge(w http.ResponseWriter, r *http.Request) {
	var payment struct {
		ID        string    `json:"id"`
		ChargeNo  int       `json:"charge_no"`
		Amount    int64     `json:"amount"`
		ChargedAt time.Time `json:"charged_at"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&payment); err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": `send JSON, such as {"amount": 1999}`})
		return
	}
	if slow, err := time.ParseDuration(r.URL.Query().Get("slow")); err == nil {
		time.Sleep(min(slow, maxSlow))
	}
	payment.ID = "pay_" + strings.ToLower(rand.Text()[:10])
	payment.ChargedAt = time.Now().UTC()
	a.mu.Lock()
	a.charges++
	payment.ChargeNo = a.charges
	fmt.Fprintf(a.out, "  payments API: charge no. %d, %s, amount %d\n", payment.ChargeNo, payment.ID, payment.Amount)
	a.mu.Unlock()
	writeJSON(w, http.StatusCreated, payment)
}

func (a *paymentsAPI) count(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]int{"charges": a.charges})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller is gone
}
