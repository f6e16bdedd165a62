package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/idempotency"
)

const sent = "sent" // a list of all mails, "<operation> <to>"

// outbox stands for a provider of mail: it sends whatever it is asked to, and what it has sent can
// be searched by a reference of ours, here the operation's name.
type outbox struct{ redis *redis.Client }

// send takes as long before the mail is out of the house as after.
func (o *outbox) send(ctx context.Context, operation, to string) error {
	time.Sleep(2 * time.Millisecond)
	defer time.Sleep(2 * time.Millisecond)
	return o.redis.RPush(ctx, sent, operation+" "+to).Err()
}

// operations are those whose mail was sent.
func (o *outbox) operations(ctx context.Context) (map[string]bool, error) {
	list, err := o.redis.LRange(ctx, sent, 0, -1).Result()
	found := map[string]bool{}
	for _, mail := range list {
		operation, _, _ := strings.Cut(mail, " ")
		found[operation] = true
	}
	return found, err
}

// settle ends the doubt about messages by what was sent. It is for when the consumers that were
// silent have ended for certain: one that was only paused could still send what "not begun" says
// was not, so that with such ones a person has to settle (coatcheck operation settle).
func settle(ctx context.Context, tokens *idempotency.Tokens, mails *outbox) (happened, not int, err error) {
	for after, more := "", true; more; more = after != "" {
		list, next, err := tokens.List(ctx, stream, after, 100)
		if err != nil {
			return happened, not, err
		}
		// after the list: what is in doubt by now is not sent any more
		found, err := mails.operations(ctx)
		if err != nil {
			return happened, not, err
		}
		for _, operation := range list {
			err := tokens.Settle(ctx, operation.Name, settlement(found[operation.Name]))
			switch {
			case errors.Is(err, idempotency.ErrNotInDoubt), errors.Is(err, idempotency.ErrAttemptRunning):
				continue // its doubt has ended meanwhile
			case err != nil:
				return happened, not, err
			case found[operation.Name]:
				happened++
			default:
				not++
			}
		}
		after = next
	}
	return happened, not, nil
}

// settlement is what to say of an operation whose mail was sent, or was not.
func settlement(happened bool) idempotency.Settlement {
	if !happened {
		return idempotency.Settlement{Decision: idempotency.DecisionNotBegun}
	}
	return idempotency.Settlement{Decision: idempotency.DecisionHappened, Answer: idempotency.Answer{Status: 200}}
}
