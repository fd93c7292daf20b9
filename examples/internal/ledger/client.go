package ledger

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Client writes to a ledger.
type Client struct {
	// URL is that of the server.
	URL  string
	HTTP http.Client
}

const (
	// retryInterval is the time between two attempts to reach the ledger.
	retryInterval = 50 * time.Millisecond
	attemptMax    = 2 * time.Second
)

// Claim sets right.Run, and right.Seq to the number of the last write of right.Resource.
// From then on, the ledger rejects all older rights, and earlier claims with this one.
func (c *Client) Claim(ctx context.Context, right *Entry) error {
	claim := *right
	claim.Run, claim.Claim, claim.Seq = rand.Text(), true, 0
	stored, err := c.append(ctx, &claim)
	right.Run, right.Seq = claim.Run, stored.Seq
	return err
}

// Write appends an entry. It can be repeated: the ledger stores it once.
func (c *Client) Write(ctx context.Context, e Entry) error {
	_, err := c.append(ctx, &e)
	return err
}

// append sends an entry until the ledger responds or ctx ends. The error is ErrFenced, or
// that of ctx: then the entry may or may not be stored.
func (c *Client) append(ctx context.Context, e *Entry) (Entry, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return Entry{}, err
	}
	for {
		stored, again, err := c.attempt(ctx, body)
		if !again {
			return stored, err
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return Entry{}, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

func (c *Client) attempt(ctx context.Context, body []byte) (stored Entry, again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptMax)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/ledger", bytes.NewReader(body))
	if err != nil {
		return Entry{}, false, err
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		return Entry{}, true, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxEntry))
	switch {
	case err != nil:
		return Entry{}, true, err
	case response.StatusCode == http.StatusConflict:
		return Entry{}, false, fmt.Errorf("%w: %s", ErrFenced, bytes.TrimSpace(text))
	case response.StatusCode != http.StatusOK:
		return Entry{}, response.StatusCode >= http.StatusInternalServerError,
			fmt.Errorf("the ledger responded with status %d: %s", response.StatusCode, bytes.TrimSpace(text))
	}
	return stored, false, json.Unmarshal(text, &stored)
}
