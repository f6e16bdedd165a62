package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/grpcmw"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

const pay = "/shop.Payments/Pay"

// shop is a server with one method, and a client of it.
type shop struct {
	t      *testing.T
	tokens *idempotency.Tokens
	log    logtest.Text
	store  *redisstore.Store
	client *grpc.ClientConn
	method func(ctx context.Context, order string) (string, error)
	runs   atomic.Int32
}

func open(t *testing.T, config grpcmw.Config) *shop {
	t.Helper()
	s := &shop{t: t, store: storetest.Open(t, redisstore.Config{URL: "embedded:"})}
	s.tokens = idempotency.New(s.store, idempotency.Config{Logger: s.log.Logger()})
	s.method = func(_ context.Context, order string) (string, error) { return "paid " + order, nil }
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(recovered, grpcmw.UnaryServerInterceptor(s.tokens, config)))
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "shop.Payments", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Pay", Handler: s.handle}}}, s)
	listener := bufconn.Listen(1 << 20)
	go func() { _ = server.Serve(listener) }()
	client, err := grpc.NewClient("passthrough:shop", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatalf("the client: %v", err)
	}
	s.client = client
	t.Cleanup(func() {
		_ = client.Close()
		server.Stop()
		_ = s.tokens.Close(context.Background())
	})
	return s
}

// recovered makes a status of a panic, as servers do.
func recovered(ctx context.Context, message any, _ *grpc.UnaryServerInfo, method grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = status.Errorf(codes.Internal, "panic: %v", reason)
		}
	}()
	return method(ctx, message)
}

// handle is what protoc writes for a method.
func (s *shop) handle(_ any, ctx context.Context, decode func(any) error, guard grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // as gRPC has it
	order := new(wrapperspb.StringValue)
	if err := decode(order); err != nil {
		return nil, err
	}
	return guard(ctx, order, &grpc.UnaryServerInfo{FullMethod: pay}, func(ctx context.Context, message any) (any, error) {
		s.runs.Add(1)
		answer, err := s.method(ctx, message.(*wrapperspb.StringValue).GetValue())
		if err != nil {
			return nil, err
		}
		return wrapperspb.String(answer), nil
	})
}

// call pays for an order with metadata, and returns what came.
func (s *shop) call(order string, pairs ...string) (answer string, replayed bool, err error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(s.t.Context(), pairs...), time.Minute)
	defer cancel()
	got, header := new(wrapperspb.StringValue), metadata.MD{}
	err = s.client.Invoke(ctx, pay, wrapperspb.String(order), got, grpc.Header(&header))
	return got.GetValue(), strings.Join(header.Get(grpcmw.Replayed), "") == "true", err
}

func (s *shop) wants(order string, code codes.Code, reason string, pairs ...string) error {
	s.t.Helper()
	_, _, err := s.call(order, pairs...)
	expect.Equal(s.t, fmt.Sprintf("status of %q with %q", order, pairs), status.Code(err), code)
	got := ""
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is && info.GetDomain() == "coatcheck" {
			got = info.GetReason()
		}
	}
	expect.Equal(s.t, fmt.Sprintf("reason of the status of %q with %q", order, pairs), got, reason)
	return err
}

func (s *shop) ran(want int32) {
	s.t.Helper()
	expect.Equal(s.t, "runs of the method", s.runs.Load(), want)
}

func TestRepeatedCallGetsTheRecordedMessage(t *testing.T) {
	s := open(t, grpcmw.Config{})
	for i := range 3 {
		answer, replayed, err := s.call("a", grpcmw.KeyMetadata, "order-1")
		expect.MustEqual(t, "error of a call", err, nil)
		expect.Equal(t, "answer", answer, "paid a")
		expect.Equal(t, "whether it is replayed", replayed, i > 0)
	}
	s.ran(1)
	issued, err := s.tokens.Issue(t.Context(), "", "", 0)
	expect.MustEqual(t, "error of issuing a token", err, nil)
	for range 2 {
		answer, _, err := s.call("b", grpcmw.TokenMetadata, issued.Value, grpcmw.KeyMetadata, "ignored")
		expect.MustEqual(t, "error of a call with a token", err, nil)
		expect.Equal(t, "answer", answer, "paid b")
	}
	s.ran(2)
	for _, who := range []string{"ann", "bob"} {
		_, _, err := s.call("c", grpcmw.KeyMetadata, "shared", "authorization", who)
		expect.MustEqual(t, "error of a call by "+who, err, nil)
	}
	s.ran(4)
}

// Without a name all callers are one: the log says so once a minute.
func TestCallWithAKeyAndWithoutACallerIsWarnedOf(t *testing.T) {
	s := open(t, grpcmw.Config{})
	s.call("1", "idempotency-key", "a", "authorization", "ann")
	expect.Equal(t, "lines for a caller with a name", strings.Count(s.log.String(), "all such callers are one"), 0)
	for range 2 {
		s.call("1", "idempotency-key", "a")
	}
	expect.Equal(t, "lines for callers without", strings.Count(s.log.String(), "all such callers are one"), 1)
	expect.Contains(t, "the log", s.log.String(), "route="+pay)
}

// A method may have charged before it passes on the status of a call behind it.
func TestStatusesAreRecordedOrLeaveTheOperationInDoubt(t *testing.T) {
	for _, row := range []struct {
		err  error
		then string // the answer to the repeat: same or doubt
	}{
		{status.Error(codes.FailedPrecondition, "no cover"), "same"}, {status.Error(codes.InvalidArgument, "no order"), "same"},
		{status.Error(codes.Internal, "broken"), "same"}, {status.Error(codes.ResourceExhausted, "later"), "same"},
		{status.Error(codes.Unauthenticated, "who"), "same"}, {status.Error(codes.PermissionDenied, "no"), "same"},
		{status.Error(codes.Unavailable, "bank away"), "doubt"},
		{status.Error(codes.DeadlineExceeded, "late"), "doubt"}, {status.Error(codes.Canceled, "gone"), "doubt"}, {status.Error(codes.Unknown, "?"), "doubt"},
		{errors.New("no status"), "doubt"},
	} {
		s := open(t, grpcmw.Config{Options: idempotency.ClaimOptions{Lease: idempotency.MinLease}})
		usual := s.method
		s.method = func(context.Context, string) (string, error) { return "", row.err }
		_, _, first := s.call("a", grpcmw.KeyMetadata, "k")
		expect.Equal(t, row.err.Error()+": first status", status.Code(first), status.Code(row.err))
		s.method = usual
		switch row.then {
		case "same":
			_, replayed, again := s.call("a", grpcmw.KeyMetadata, "k")
			expect.Equal(t, row.err.Error()+": again", status.Convert(again).Message(), status.Convert(row.err).Message())
			expect.Equal(t, row.err.Error()+": whether it is replayed", replayed, true)
			s.ran(1)
		case "doubt":
			s.wants("a", codes.FailedPrecondition, "idempotency-outcome-unknown", grpcmw.KeyMetadata, "k")
			s.ran(1)
		}
	}
}

// What a resolver says of a method is what its repeat gets.
func TestResolverOfAMethodEndsItsDoubt(t *testing.T) {
	t.Parallel()
	for name, happened := range map[string]bool{"it happened": true, "it had not begun": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, grpcmw.Config{Options: idempotency.ClaimOptions{
				Resolve: func(_ context.Context, o idempotency.Operation) (said idempotency.Resolution, err error) {
					expect.Equal(t, "the method that it is asked about", o.Route, pay)
					if !happened {
						return idempotency.Resolution{Decision: idempotency.DecisionNotBegun}, nil
					}
					said.Decision = idempotency.DecisionHappened
					said.Answer, err = grpcmw.Answer(wrapperspb.String("paid before"))
					return said, err
				},
			}})
			s.method = func(context.Context, string) (string, error) {
				if s.runs.Load() == 1 {
					return "", status.Error(codes.Unavailable, "the bank's line is cut")
				}
				return "paid now", nil
			}
			_, _, err := s.call("book", grpcmw.KeyMetadata, "k")
			expect.Equal(t, "status of the first call", status.Code(err), codes.Unavailable)
			answer, replayed, err := s.call("book", grpcmw.KeyMetadata, "k")
			expect.NoError(t, "the repeat", err)
			expect.Equal(t, "its message", answer, map[bool]string{true: "paid before", false: "paid now"}[happened])
			expect.Equal(t, "whether it is replayed", replayed, happened)
			s.ran(map[bool]int32{true: 1, false: 2}[happened])
		})
	}
}

func TestPanicLeavesTheOperationInDoubt(t *testing.T) {
	s := open(t, grpcmw.Config{})
	s.method = func(context.Context, string) (string, error) { panic("at the disco") }
	s.wants("a", codes.Internal, "", grpcmw.KeyMetadata, "k")
	err := s.wants("a", codes.FailedPrecondition, "idempotency-outcome-unknown", grpcmw.KeyMetadata, "k")
	s.ran(1)
	var operation string
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is {
			operation = info.GetMetadata()["operation"]
		}
	}
	settled := idempotency.Settlement{Decision: idempotency.DecisionHappened, Answer: idempotency.Answer{Status: 200}}
	expect.MustEqual(t, "error of settling the operation that the status names, "+operation, s.tokens.Settle(t.Context(), operation, settled), nil)
	// it is done, and its message is not known
	s.wants("a", codes.FailedPrecondition, "answer-not-kept", grpcmw.KeyMetadata, "k")
	s.ran(1)
}

func TestWhatTheGuardRefuses(t *testing.T) {
	s := open(t, grpcmw.Config{Principal: func(ctx context.Context) (string, error) {
		if len(metadata.ValueFromIncomingContext(ctx, "stranger")) > 0 {
			return "", errors.New("who is that?")
		}
		return "p", nil
	}})
	s.wants("a", codes.InvalidArgument, "idempotency-key-missing")
	s.wants("a", codes.InvalidArgument, "idempotency-key-malformed", grpcmw.KeyMetadata, "x", grpcmw.KeyMetadata, "y")
	s.wants("a", codes.InvalidArgument, "idempotency-key-malformed", grpcmw.KeyMetadata, strings.Repeat("x", 256))
	s.wants("a", codes.InvalidArgument, "idempotency-key-malformed", grpcmw.KeyMetadata, "k,k")
	s.wants("a", codes.NotFound, "idempotency-token-unknown", grpcmw.TokenMetadata, "never-issued")
	for _, malformed := range []string{"", "not a token", strings.Repeat("t", 256)} {
		s.wants("a", codes.InvalidArgument, "idempotency-key-malformed", grpcmw.TokenMetadata, malformed)
	}
	s.wants("a", codes.Unauthenticated, "", grpcmw.KeyMetadata, "k", "stranger", "yes")
	s.ran(0)
	s.wants("a", codes.OK, "", grpcmw.KeyMetadata, "k")
	s.wants("b", codes.InvalidArgument, "idempotency-payload-mismatch", grpcmw.KeyMetadata, "k")
	_, replayed, _ := s.call("a", grpcmw.KeyMetadata, `"k"`)
	expect.Equal(t, "whether the key in quotes is the same", replayed, true)
	s.ran(1)
}

func TestCallWhileTheFirstOneRunsIsToldWhenToAskAgain(t *testing.T) {
	s := open(t, grpcmw.Config{})
	begun, end := make(chan struct{}), make(chan struct{})
	s.method = func(ctx context.Context, _ string) (string, error) {
		if attempt, is := idempotency.FromContext(ctx); !is || attempt.Fence <= 0 {
			return "", status.Error(codes.Internal, "no attempt in the context")
		}
		close(begun)
		<-end
		return "paid", nil
	}
	ctx, hangUp := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), grpcmw.KeyMetadata, "k"))
	gone := make(chan error, 1)
	go func() { gone <- s.client.Invoke(ctx, pay, wrapperspb.String("a"), new(wrapperspb.StringValue)) }()
	<-begun
	err := s.wants("a", codes.Aborted, "idempotency-in-progress", grpcmw.KeyMetadata, "k")
	told := false
	for _, detail := range status.Convert(err).Details() {
		retry, is := detail.(*errdetails.RetryInfo)
		told = told || is && retry.GetRetryDelay().AsDuration() > 0
	}
	expect.Equal(t, "whether it says when to ask again", told, true)
	hangUp() // the method is finished all the same, and its answer recorded
	expect.Equal(t, "status of a client that hangs up", status.Code(<-gone), codes.Canceled)
	close(end)
	expect.Eventually(t, "the answer is there", func() bool {
		answer, replayed, err := s.call("a", grpcmw.KeyMetadata, "k")
		return err == nil && replayed && answer == "paid"
	})
	s.ran(1)
}

func TestCallsThatAreNotGuarded(t *testing.T) {
	s := open(t, grpcmw.Config{Optional: true})
	for range 2 {
		s.wants("a", codes.OK, "")
	}
	s.ran(2)
	s = open(t, grpcmw.Config{Guards: func(method string) bool { return method != pay }})
	for range 2 {
		s.wants("a", codes.OK, "", grpcmw.KeyMetadata, "k")
	}
	s.ran(2)
}

// Probes ask for a server's health without a key, and by default no guard refuses them.
func TestHealthIsNotGuardedByDefault(t *testing.T) {
	s := open(t, grpcmw.Config{})
	guard := grpcmw.UnaryServerInterceptor(s.tokens, grpcmw.Config{})
	for method, code := range map[string]codes.Code{"/grpc.health.v1.Health/Check": codes.OK, "/grpc.health.v1.Healthy/Check": codes.InvalidArgument, pay: codes.InvalidArgument} {
		_, err := guard(t.Context(), wrapperspb.String("a"), &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
			return wrapperspb.String("serving"), nil
		})
		expect.Equal(t, "status of "+method+" without a key", status.Code(err), code)
	}
}

func TestCallWhoseTimeIsOverRunsNothing(t *testing.T) {
	s := open(t, grpcmw.Config{})
	guard := grpcmw.UnaryServerInterceptor(s.tokens, grpcmw.Config{})
	late, cancel := context.WithDeadline(metadata.NewIncomingContext(t.Context(), metadata.Pairs(grpcmw.KeyMetadata, "k")), time.Now().Add(-time.Second))
	defer cancel()
	_, err := guard(late, wrapperspb.String("a"), &grpc.UnaryServerInfo{FullMethod: pay}, func(context.Context, any) (any, error) {
		s.runs.Add(1)
		return wrapperspb.String("paid"), nil
	})
	expect.Equal(t, "status of a call whose deadline is over", status.Code(err), codes.DeadlineExceeded)
	s.ran(0)
	s.wants("a", codes.OK, "", grpcmw.KeyMetadata, "k")
	s.ran(1)
}

// A method that is done when its caller's time is over has had its effect, and its answer counts.
func TestAnswerAfterTheDeadlineIsRecorded(t *testing.T) {
	s := open(t, grpcmw.Config{})
	s.method = func(ctx context.Context, _ string) (string, error) {
		<-ctx.Done()
		return "paid late", nil
	}
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), grpcmw.KeyMetadata, "k"), 100*time.Millisecond)
	defer cancel()
	err := s.client.Invoke(ctx, pay, wrapperspb.String("a"), new(wrapperspb.StringValue))
	expect.Equal(t, "status of the call", status.Code(err), codes.DeadlineExceeded)
	expect.Eventually(t, "the answer is there", func() bool {
		answer, replayed, err := s.call("a", grpcmw.KeyMetadata, "k")
		return err == nil && replayed && answer == "paid late"
	})
	s.ran(1)
}

// A method that ends with its caller's time leaves open what it has done.
func TestMethodThatEndsWithItsTimeLeavesTheOutcomeUnknown(t *testing.T) {
	s := open(t, grpcmw.Config{})
	guard := grpcmw.UnaryServerInterceptor(s.tokens, grpcmw.Config{})
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(grpcmw.KeyMetadata, "k"))
	_, err := guard(ctx, wrapperspb.String("a"), &grpc.UnaryServerInfo{FullMethod: pay}, func(context.Context, any) (any, error) {
		return nil, context.DeadlineExceeded // as what is called with its context returns
	})
	expect.Error(t, "the call", err, context.DeadlineExceeded)
	s.wants("a", codes.FailedPrecondition, "idempotency-outcome-unknown", grpcmw.KeyMetadata, "k")
	s.ran(0)
}

// A repeat gets the details too, and an attempt that has done nothing runs again.
func TestReplayedStatusHasItsDetails(t *testing.T) {
	s := open(t, grpcmw.Config{})
	refused, err := status.New(codes.FailedPrecondition, "no cover").WithDetails(&errdetails.ErrorInfo{Reason: "BROKE", Domain: "bank"})
	expect.MustEqual(t, "error of a status with details", err, nil)
	s.method = func(context.Context, string) (string, error) { return "", refused.Err() }
	for range 2 {
		_, _, err := s.call("a", grpcmw.KeyMetadata, "k")
		expect.Equal(t, "the status", status.Convert(err).Proto().String(), refused.Proto().String())
	}
	s.ran(1)
	s.method = func(ctx context.Context, _ string) (string, error) {
		attempt, _ := idempotency.FromContext(ctx)
		attempt.Release()
		return "", status.Error(codes.Unavailable, "bank away")
	}
	for range 2 {
		s.wants("b", codes.Unavailable, "", grpcmw.KeyMetadata, "l")
	}
	s.ran(3)
}

func TestLargeMessageIsNotKept(t *testing.T) {
	s := open(t, grpcmw.Config{})
	s.method = func(context.Context, string) (string, error) { return strings.Repeat("x", 1<<20), nil }
	answer, _, err := s.call("a", grpcmw.KeyMetadata, "k")
	expect.MustEqual(t, "error of the first call", err, nil)
	expect.Equal(t, "bytes of the answer", len(answer), 1<<20)
	s.wants("a", codes.FailedPrecondition, "answer-not-kept", grpcmw.KeyMetadata, "k")
	s.ran(1)
}

func TestStoreThatIsAwayRunsNothing(t *testing.T) {
	s := open(t, grpcmw.Config{})
	expect.MustEqual(t, "error of closing the store", s.store.Close(), error(nil))
	s.wants("a", codes.Unavailable, "store-unavailable", grpcmw.KeyMetadata, "k")
	s.ran(0)
}
