// A TLS server and a TLS client of Go's crypto/tls.
//
// "serve" reads identities, one on each line: the chain and the key as base64 of PEM, with a tab between them. It answers
// each with the port of 127.0.0.1 that serves it, greets whoever connects, and ends when standard input does.
//
// "dial" reads questions, one on each line, with tabs between the fields: the port, the name to ask for, and the bundle as
// base64 of PEM. It answers each with a line: "accepted", or "refused", a tab, the reason, a tab, and why; or, where nobody
// got as far as to judge a certificate, "broken", a tab, and why. The clients in Java and Python do the same.
//
// "call" reads clients, one on each line, with tabs between the fields: a number, the port, the name to ask for, a mark, and the
// bundle as base64 of PEM. It answers each with "set", a tab and the number when it counts; another client of the same number takes
// its place. From then on all clients call their servers in turn, one handshake after the other, and each call has a line of its
// own: the number, the mark, and what "dial" would answer, but that "accepted" is followed by a tab and what the server said.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

const patience = 30 * time.Second

func main() {
	if len(os.Args) != 3 {
		fatal(errors.New("say serve, dial or call, and the greeting"))
	}
	greeting := os.Args[2]
	each := map[string]func([]string, string) string{"serve": serve, "dial": dial, "call": call}[os.Args[1]]
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF && line == "" {
			return
		}
		if err != nil {
			fatal(err)
		}
		// Answers are not kept back: whoever wants a server waits for it.
		fmt.Println(each(strings.Split(strings.TrimSuffix(line, "\n"), "\t"), greeting))
	}
}

func serve(fields []string, greeting string) string {
	identity, err := tls.X509KeyPair(decode(fields[0]), decode(fields[1]))
	if err != nil {
		fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{identity}})
	if err != nil {
		fatal(err)
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				fatal(err)
			}
			go greet(connection.(*tls.Conn), greeting)
		}
	}()
	return fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
}

// What goes wrong here the client knows better.
func greet(connection *tls.Conn, greeting string) {
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(connection, greeting+"\n"); err == nil && connection.CloseWrite() == nil {
		// The client closes first, so that nothing that was sent is lost.
		io.Copy(io.Discard, connection)
	}
}

func dial(fields []string, greeting string) string {
	said, answer := talk(fields[0], fields[1], decode(fields[2]))
	if answer == "accepted" && said != greeting {
		return "broken\t" + oneLine(fmt.Sprintf("said %q", said))
	}
	return answer
}

// Does a handshake, and hears what the server says.
func talk(port, name string, bundle []byte) (said, answer string) {
	anchors := x509.NewCertPool()
	if !anchors.AppendCertsFromPEM(bundle) {
		return "", "broken\tthe bundle has no certificate"
	}
	config := &tls.Config{ServerName: name, RootCAs: anchors}
	connection, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", "127.0.0.1:"+port, config)
	if err != nil {
		if reason := reason(err); reason != "" {
			return "", "refused\t" + reason + "\t" + oneLine(err.Error())
		}
		return "", "broken\t" + oneLine(err.Error())
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(patience))
	text, err := io.ReadAll(connection)
	if err != nil {
		return "", "broken\t" + oneLine(fmt.Sprintf("said %q, %v", text, err))
	}
	return strings.TrimSuffix(string(text), "\n"), "accepted"
}

type client struct {
	number, port, name, mark string
	bundle                   []byte
}

// Who calls, in the order in which they came.
var clients struct {
	sync.Mutex
	all  []client
	next int
}

func call(fields []string, _ string) string {
	it := client{fields[0], fields[1], fields[2], fields[3], decode(fields[4])}
	clients.Lock()
	defer clients.Unlock()
	for i := range clients.all {
		if clients.all[i].number == it.number {
			clients.all[i] = it
			return "set\t" + it.number
		}
	}
	clients.all = append(clients.all, it)
	if len(clients.all) <= callers {
		go callForever()
	}
	return "set\t" + it.number
}

// How many calls are under way at once.
const callers = 2

func callForever() {
	for {
		clients.Lock()
		it := clients.all[clients.next%len(clients.all)]
		clients.next++
		clients.Unlock()
		said, answer := talk(it.port, it.name, it.bundle)
		if answer == "accepted" {
			answer += "\t" + oneLine(said)
		}
		fmt.Println(it.number + "\t" + it.mark + "\t" + answer)
	}
}

// Why a certificate was refused, or nothing where something else is the matter.
func reason(err error) string {
	var name x509.HostnameError
	var issuer x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var constraint x509.ConstraintViolationError
	var critical x509.UnhandledCriticalExtension
	switch {
	case errors.As(err, &name):
		return "name"
	case errors.As(err, &issuer):
		return "issuer"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "time"
	case errors.As(err, &invalid), errors.As(err, &constraint), errors.As(err, &critical):
		return "other"
	}
	return ""
}

func decode(field string) []byte {
	text, err := base64.StdEncoding.DecodeString(field)
	if err != nil {
		fatal(err)
	}
	return text
}

func oneLine(text string) string {
	return strings.Join(strings.Fields(text), " ")
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
