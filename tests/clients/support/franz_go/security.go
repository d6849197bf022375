package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// How round trips connect; see rounds.py.
var security struct {
	Protocol, Mechanism, User, Password, Token, CA, Certificate string
}

func secure(files []string) {
	for _, file := range files {
		check(json.Unmarshal(read(file), &security))
	}
}

func servers(bootstrap string) []kgo.Opt {
	options := []kgo.Opt{kgo.SeedBrokers(bootstrap)}
	if strings.HasSuffix(security.Protocol, "SSL") {
		options = append(options, kgo.DialTLSConfig(tlsConfig()))
	}
	switch security.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: security.User, Pass: security.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: security.User, Pass: security.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: security.User, Pass: security.Password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: string(read(security.Token))}.AsMechanism()))
	}
	return options
}

func tlsConfig() *tls.Config {
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(read(security.CA))
	if security.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(security.Certificate, security.Certificate)
		check(err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func read(file string) []byte {
	data, err := os.ReadFile(file)
	check(err)
	return data
}
