"""Check of admission webhooks: filled in, trusted, with valid certificates, and reachable."""

import binascii
import datetime as dt
from base64 import b64decode
from collections.abc import Iterator
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from koordinator.api.control_plane import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from koordinator.api.core import Secret
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.meta import ObjectMeta
from koordinator.cli.doctor.findings import CheckResult, Finding, named, unreadable
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.domain.component_health import WEBHOOKS, webhook_findings
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.errors import ClusterError, InvalidError, NotFoundError
from koordinator.process.serving_secret import read_pair

CHECK: Final = "webhooks"
CERTIFICATES: Final = "koordinator-webhook-certs"  # the Secret of koord-manager
WARNED_BEFORE: Final = dt.timedelta(days=30)
_RESTART: Final = "kubectl -n {} rollout restart deployment/koord-manager, and read its log"

_Configuration = MutatingWebhookConfiguration | ValidatingWebhookConfiguration


def check_webhooks(cluster: KubernetesCluster, namespace: str, now_s: float) -> CheckResult:
    """Check both configurations and their certificates, and call a webhook by a dry run."""
    findings: list[Finding] = []
    configurations: list[_Configuration] = []
    for kind, name in WEBHOOKS.items():
        try:
            configuration = cluster.get(kind, name)
        except NotFoundError:
            remedy = "apply the manifests of this version: helm upgrade, or deploy/koordinator.yaml"
            findings.append(_finding(f"{kind.PLURAL}/{name}", "does not exist", remedy))
        except ClusterError as error:
            findings.append(unreadable(CHECK, f"{kind.PLURAL}/{name}", error))
        else:
            if isinstance(
                configuration, MutatingWebhookConfiguration | ValidatingWebhookConfiguration
            ):
                configurations.append(configuration)
    serving, problem = _serving_certificate(cluster, namespace)
    findings += problem
    findings += configuration_findings(configurations, serving, namespace, to_datetime(now_s))
    if configurations:
        findings += _call(cluster, namespace)
    webhooks = sum(len(each.webhooks) for each in configurations)
    summary = f"{webhooks} webhooks, their certificates, and a call by a dry run"
    return CheckResult(name=CHECK, summary=summary, findings=tuple(findings))


def configuration_findings(
    configurations: list[_Configuration],
    serving: x509.Certificate | None,
    namespace: str,
    now: dt.datetime,
) -> Iterator[Finding]:
    """Yield problems of configurations, given the certificate that koord-manager serves."""
    restart = _RESTART.format(namespace)
    for finding in webhook_findings(configurations):
        yield _finding(finding.about, finding.text, restart)
    for one in configurations:
        by_bundle: dict[str, list[str]] = {}
        for webhook in one.webhooks:
            bundle = str((webhook.get("clientConfig") or {}).get("caBundle") or "")
            if bundle:
                by_bundle.setdefault(bundle, []).append(str(webhook.get("name", "")))
        about = f"{one.PLURAL}/{one.metadata.name}"
        for bundle, names in by_bundle.items():
            for problem in _bundle_problems(bundle, serving, now):
                yield _finding(about, f"caBundle of {named(names)}: {problem}", restart)


def _bundle_problems(
    bundle: str, serving: x509.Certificate | None, now: dt.datetime
) -> Iterator[str]:
    try:
        trusted = x509.load_pem_x509_certificates(b64decode(bundle, validate=True))
    except (ValueError, binascii.Error) as error:
        yield f"is no list of PEM certificates: {error}"
        return
    valid = [each for each in trusted if each.not_valid_after_utc > now]
    if not valid:
        ended = max(each.not_valid_after_utc for each in trusted)
        yield f"expired at {ended:%Y-%m-%dT%H:%M:%SZ}"
    elif (last := max(each.not_valid_after_utc for each in valid)) < now + WARNED_BEFORE:
        yield f"expires at {last:%Y-%m-%dT%H:%M:%SZ}, in less than {WARNED_BEFORE.days} days"
    if serving is not None and not any(_trusts(each, serving) for each in trusted):
        yield f"does not trust the certificate in the Secret {CERTIFICATES}"


def _trusts(authority: x509.Certificate, serving: x509.Certificate) -> bool:
    if authority == serving:
        return True
    try:
        serving.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _serving_certificate(
    cluster: KubernetesCluster, namespace: str
) -> tuple[x509.Certificate | None, list[Finding]]:
    """Return the certificate in koord-manager's Secret; None if it has another source."""
    try:
        secret = cluster.get(Secret, CERTIFICATES, namespace)
    except NotFoundError:
        return None, []
    except ClusterError as error:
        return None, [unreadable(CHECK, f"secrets/{CERTIFICATES}", error)]
    stored = read_pair(secret)
    if stored is None:
        remedy = f"kubectl -n {namespace} delete secret {CERTIFICATES}; koord-manager creates it"
        problem = "has no certificate and key in PEM format"
        return None, [_finding(f"secrets/{CERTIFICATES}", problem, remedy)]
    return x509.load_pem_x509_certificate(stored.pair.certificate), []


def _call(cluster: KubernetesCluster, namespace: str) -> Iterator[Finding]:
    """Have the API server call the webhooks of ElasticQuotas, which it must not ignore.

    All webhooks have one Service and one certificate.
    """
    quota = ElasticQuota(metadata=ObjectMeta(name="koord-doctor", namespace=namespace))
    try:
        cluster.try_create(quota)
    except NotFoundError as error:  # a definition or the namespace is missing: another check
        yield unreadable(CHECK, "a call by a dry run", error)
    except InvalidError as error:
        if "failed calling webhook" not in str(error) and "denied the request" not in str(error):
            yield unreadable(CHECK, "a call by a dry run", error)
    except ClusterError as error:
        remedy = (
            f"kubectl -n {namespace} get endpointslices -l kubernetes.io/service-name="
            "koordinator-webhook-service: pods of koord-manager must be ready, and network "
            "policies must let the API server reach port 443"
        )
        yield _finding("a call by a dry run", str(error), remedy)


def _finding(about: str, problem: str, remedy: str) -> Finding:
    return Finding(check=CHECK, about=about, problem=problem, remedy=remedy)
