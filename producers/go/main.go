// Requests pages from Everfresh by signed HTTP request. Needs only Go's standard library, and a key
// from EVERFRESH_REVALIDATE_KEYS of the serving function (template parameter RevalidateKeys).
//
//	EVERFRESH_KEY=name:secret go run main.go https://www.example.com /products/42 [REQUEST_ID]
//
// If the outcome is unknown, it is sent again with the same request id: two requests with one id are
// one. Prints the handle of the request, by which its state is read.
package main

import (
	"bytes"
	"crypto/hmac"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	target         = "/_everfresh/revalidate"
	attemptTimeout = 3 * time.Second
	totalTimeout   = 30 * time.Second
	maxBackoff     = 2 * time.Second
)

// accepted is the answer once the queue has the request.
type accepted struct {
	Handle string `json:"handle"`
	Key    string `json:"key"`
}

// A trigger sends signed requests to one site.
type trigger struct {
	client     http.Client
	site, host string
	id, secret string
}

func newTrigger(site, key string) (*trigger, error) {
	address, err := url.Parse(strings.TrimSuffix(site, "/"))
	id, secret, ok := strings.Cut(key, ":")
	if err != nil || address.Hostname() == "" || address.Path != "" || !ok {
		return nil, fmt.Errorf("the site must be https://HOST, and EVERFRESH_KEY must be name:secret")
	}
	host := strings.TrimSuffix(strings.ToLower(address.Hostname()), ".")
	client := http.Client{Timeout: attemptTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return &trigger{client, address.String(), host, id, secret}, nil
}

// revalidate requests one page, under one request id however often it has to be tried.
func (t *trigger) revalidate(path, requestID string) (*accepted, error) {
	body, err := json.Marshal(map[string]string{"path": path})
	if err != nil {
		return nil, err
	}
	limit, end := 100*time.Millisecond, time.Now().Add(totalTimeout)
	for {
		result, retryAfter, final, err := t.attempt(body, requestID)
		// Full jitter, so that producers throttled together do not retry together.
		pause := retryAfter + time.Duration(rand.Int63n(int64(limit)))
		if err == nil || final || time.Now().Add(pause).After(end) {
			return result, err
		}
		time.Sleep(pause)
		limit = min(2*limit, maxBackoff)
	}
}

// attempt sends one request, signed anew: a nonce counts once. final: sending it again is useless.
func (t *trigger) attempt(body []byte, requestID string) (result *accepted, retryAfter time.Duration, final bool, err error) {
	request, err := http.NewRequest(http.MethodPost, t.site+target, bytes.NewReader(body))
	if err != nil {
		return nil, 0, true, err
	}
	timestamp, nonce, hash := strconv.FormatInt(time.Now().Unix(), 10), token(), sha256.Sum256(body)
	digest := hex.EncodeToString(hash[:])
	// These lines cover the whole request, so that it can be neither changed nor replayed.
	lines := []string{"everfresh-1", request.Method, t.host, target, timestamp, nonce, requestID, digest}
	mac := hmac.New(sha256.New, []byte(t.secret))
	mac.Write([]byte(strings.Join(lines, "\n")))
	for name, value := range map[string]string{
		"x-everfresh-key-id":    t.id,
		"x-everfresh-timestamp": timestamp,
		"x-everfresh-nonce":     nonce,
		"x-everfresh-signature": hex.EncodeToString(mac.Sum(nil)),
		"x-request-id":          requestID,
		"content-type":          "application/json",
		// CloudFront signs origin requests without reading the body: the client sends its hash.
		"x-amz-content-sha256": digest,
	} {
		request.Header.Set(name, value)
	}
	answer, err := t.client.Do(request)
	if err != nil {
		// It may have arrived.
		return nil, 0, false, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, 0, false, err
	}
	if answer.StatusCode != http.StatusAccepted {
		seconds, _ := strconv.ParseUint(answer.Header.Get("retry-after"), 10, 16)
		refused := answer.StatusCode < 500 && answer.StatusCode != http.StatusTooManyRequests
		return nil, time.Duration(seconds) * time.Second, refused, fmt.Errorf("%s answered HTTP %d: %s", t.host, answer.StatusCode, text)
	}
	result = new(accepted)
	return result, 0, false, json.Unmarshal(text, result)
}

func token() string {
	random := make([]byte, 16)
	if _, err := cryptorand.Read(random); err != nil {
		panic(err) // the operating system has no randomness
	}
	return hex.EncodeToString(random)
}

func min(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

func main() {
	if len(os.Args) < 3 || len(os.Args) > 4 {
		fmt.Fprintln(os.Stderr, "EVERFRESH_KEY=name:secret go run main.go https://www.example.com PATH [REQUEST_ID]")
		os.Exit(2)
	}
	rand.Seed(time.Now().UnixNano())
	requestID := "auto-" + token()
	if len(os.Args) == 4 {
		requestID = os.Args[3]
	}
	t, err := newTrigger(os.Args[1], os.Getenv("EVERFRESH_KEY"))
	if err == nil {
		var result *accepted
		if result, err = t.revalidate(os.Args[2], requestID); err == nil {
			fmt.Println(result.Handle)
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
