// Byogen does with the client of ogen what each program here does, and prints what came.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/ogen-go/ogen/ogenerrors"

	"generated/ogen"
)

func main() {
	ctx := context.Background()
	service, err := ogen.NewClient(os.Args[1], open{})
	must(err)

	issued := as[*ogen.TokenIssuedHeaders](service.IssueToken(ctx, ogen.OptTokenRequest{}, ogen.IssueTokenParams{}))
	token := issued.Response.Token
	claim := func() ogen.Claimed {
		request := &ogen.ClaimRequest{Fingerprint: "charge-42"}
		return as[*ogen.ClaimedHeaders](service.ClaimToken(ctx, request, ogen.ClaimTokenParams{Token: token})).Response
	}
	granted := claim()
	fmt.Println("claim:", granted.Outcome)
	_ = as[*ogen.Done](service.CompleteToken(ctx, &ogen.Answer{Status: 201},
		ogen.CompleteTokenParams{Token: token, LeaseToken: granted.Lease.Value}))
	fmt.Println("complete:", 204)
	replayed := claim()
	fmt.Println("claim:", replayed.Outcome, replayed.Response.Value.Status)

	values := as[*ogen.IncrementedHeaders](service.Incr(ctx, &ogen.Nothing{}, ogen.IncrParams{Key: "orders", By: ogen.NewOptInt(3)})).Response
	fmt.Println("values:", values.First, values.Value)

	lock := as[*ogen.LockGrantedHeaders](service.AcquireLock(ctx, ogen.OptLockRequest{}, ogen.AcquireLockParams{Name: "report"})).Response
	fmt.Println("lock:", 201, lock.Name)
	problem := as[*ogen.LockHeldHeaders](service.AcquireLock(ctx, ogen.OptLockRequest{}, ogen.AcquireLockParams{Name: "report"})).Response
	fmt.Println("problem:", problem.Status, problem.Code, problem.Retryable)
	_ = as[*ogen.Done](service.ReleaseLock(ctx, ogen.ReleaseLockParams{Name: "report", LeaseToken: ogen.NewOptString(lock.Lease)}))
	fmt.Println("release:", 204)
}

// as returns an answer, which must be of that type.
func as[T any](answer any, err error) T {
	must(err)
	right, ok := answer.(T)
	if !ok {
		log.Fatalf("the answer is a %T: %+v", answer, answer)
	}
	return right
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// open is a service without API keys.
type open struct{}

func (open) Bearer(context.Context, ogen.OperationName) (ogen.Bearer, error) {
	return ogen.Bearer{}, ogenerrors.ErrSkipClientSecurity
}

func (open) Header(context.Context, ogen.OperationName) (ogen.Header, error) {
	return ogen.Header{}, ogenerrors.ErrSkipClientSecurity
}
