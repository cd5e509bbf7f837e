#!/usr/bin/env bash
# Starts what a pod asks of the image: `executor`, as Spark's Kubernetes client writes it, or a command of the driver.
set -euo pipefail

if [ "${1:-}" != executor ]; then
    exec "$@"
fi

spark_home=${SPARK_HOME:-$(python3 -c 'import pyspark; print(pyspark.__path__[0])')}
mapfile -t java_options < <(env | grep '^SPARK_JAVA_OPT_' | sort -t_ -k4 -n | sed 's/[^=]*=//')
exec java "${java_options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-}:$spark_home/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
