"""Objects with which DynamicResources rejects and scores, for the suite of plugins."""

from koordinator.scheduler.contract import PluginExample

_DRIVER = "gpu.example.com"
EXAMPLE = PluginExample(
    pods=(
        {},
        *({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": n}]}} for n in "ab"),
    ),
    objects=(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{_DRIVER}"'}}]},
        },
        *(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "devices": {
                        "requests": [
                            {
                                "name": "r",
                                "firstAvailable": [
                                    {"name": "two", "deviceClassName": "gpu", "count": 2},
                                    {"name": "one", "deviceClassName": "gpu", "count": 1},
                                ],
                            }
                        ]
                    }
                },
            }
            for name in "ab"
        ),
        *(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": node},
                "spec": {
                    "driver": _DRIVER,
                    "nodeName": node,
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": f"gpu-{i}"} for i in range(count)],
                },
            }
            for node, count in (("n0", 1), ("n1", 2))
        ),
    ),
)
